"""The hosts ``qemu:arm64-<CPU>``: an ARM CPU that Debian's qemu-user emulates, for the engines that have wheels for it.

Python and the engines for ARM, in the versions that are installed here, are fetched by an explicit command into the
cache (``arm_environment``). Answers only, as of every emulated CPU.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import qbench
from qbench.cache.root import cache_folder
from qbench.errors import UsageError
from qbench.hosts import arm_environment, arm_identity
from qbench.hosts.arm_environment import ENGINES, ArmEnvironment
from qbench.hosts.base import Answers, EmulatedPython, Host
from qbench.hosts.qemu import Identity, Qemu, identify, read_version

NAMES = "arm64-"
QEMU = Qemu(program="qemu-aarch64", listed_cpu=r"^  (\S+)$", prefix=f"qemu:{NAMES}")
# With SME under qemu 7.2 a dynamic file on ONNX Runtime 1.32 gave outputs that were 88 off, where `max` without it and
# every other ARM CPU agree with x86 to 0.001. Whether qemu or the library errs is not known.
_OPTIONS = {"max": "max,sme=off"}
_TORCH = ("torch", "fbgemm", "x86", "onednn", "qnnpack", "inductor", "executorch")
_RUNS = (*ENGINES, "fake")
_LIST_VERSIONS = (
    "import importlib.metadata, platform, sys; "
    "print('Python', platform.python_version()); "
    "[print(name, importlib.metadata.version(name)) for name in sys.argv[1:]]; "
    "[__import__(name) for name in sys.argv[1:]]"
)
_IMPORT_SECONDS = 600.0


class EmulatedArm(Host):
    """An ARM CPU (aarch64) by the name that qemu gives it."""

    kind = "emulated"
    title = "an emulated CPU, answers only"

    def __init__(self, cpu: str) -> None:
        self.name = f"{QEMU.prefix}{cpu}"
        self._cpu = cpu
        self._options = _OPTIONS.get(cpu, cpu)

    def missing(self) -> str | None:
        """It takes qemu-user, which must know the CPU, and Python and the engines for ARM in the cache."""
        return QEMU.explain_missing(self._cpu) or arm_environment.explain_missing(cache_folder(), self.name)

    def why_not(self, backend: str) -> str | None:
        """Only of ONNX Runtime and OpenVINO is there a wheel for an ARM CPU."""
        if backend in _RUNS:
            return None
        if backend in _TORCH:
            return (
                "not emulated: torch's wheel for ARM is a build for CUDA, which requires some gigabytes of NVIDIA's "
                "libraries; onnxruntime and openvino are emulated on ARM"
            )
        return f"not emulated: on ARM {' and '.join(ENGINES)} are, not {backend}"

    def answers(self, backend: str) -> Answers:
        """All are emulated."""
        return "emulated"

    def environment(self) -> Mapping[str, str]:
        """None: the kernels ask the emulated CPU."""
        return {}

    def prepare(self, root: Path, tell: Callable[[str], None]) -> str:
        """Fetches Python and the engines for ARM and imports them on the emulated CPU; their versions as read there.
        Raises ``UsageError`` where qemu-user is not installed, something cannot be fetched, or a version differs."""
        if (reason := QEMU.explain_missing(self._cpu)) is not None:
            raise UsageError(reason)
        environment = arm_environment.make_environment(root, tell)
        tell(f"versions, as read on {self.name}")
        versions = self._read_versions(environment)
        for name, version in arm_environment.list_versions().items():
            if versions[name] != version:
                raise UsageError(f"{self.name} has {name} {versions[name]} and this machine {version}")
        return (
            f"{self.name}: {', '.join(f'{name} {version}' for name, version in versions.items())}, as read there; in "
            f"{environment.system.parent}"
        )

    def start_python(self, folder: Path) -> EmulatedPython:
        """The Python of the environment on the emulated CPU. ``folder`` gets its root folder, where ``/proc/cpuinfo``
        is that of the CPU, and a link to qbench alone: no other package of this machine's is found. Raises
        ``CaseSkipped`` where the environment is not there, or nothing runs there."""
        return self._start(arm_environment.open_environment(cache_folder(), self.name), folder)

    def describe(self) -> str:
        """The CPU as it names itself, and who emulates it; raises ``CaseSkipped`` where nothing runs there."""
        environment = arm_environment.open_environment(cache_folder(), self.name)
        identity = self._identify(environment)
        cpu, isa = f"{self._options} ({identity.cpu})", " ".join(identity.isa)
        return f"{cpu}, {isa}; {read_version(QEMU.require())}, libc6 {environment.facts['libc6']}"

    def _start(self, environment: ArmEnvironment, folder: Path) -> EmulatedPython:
        root, modules = folder / "root", folder / "modules"
        (root / "proc").mkdir(parents=True)
        (root / "proc" / "cpuinfo").write_text(self._identify(environment).cpuinfo)
        for path in environment.system.iterdir():
            (root / path.name).symlink_to(path)
        modules.mkdir()
        (modules / "qbench").symlink_to(Path(qbench.__file__).parent)
        return EmulatedPython(
            command=(*self._list_command(root), str(environment.python), "-S"),
            variables={"PYTHONPATH": f"{environment.packages}:{modules}", "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def _identify(self, environment: ArmEnvironment) -> Identity:
        command = (*self._list_command(environment.system), str(environment.python))
        return identify(command, arm_identity.__file__)

    def _list_command(self, root: Path) -> tuple[str, ...]:
        return (QEMU.require(), "-cpu", self._options, "-L", str(root))

    def _read_versions(self, environment: ArmEnvironment) -> dict[str, str]:
        """The versions of Python and the packages, which are imported on the emulated CPU."""
        import os
        import tempfile

        names = list(arm_environment.list_versions())
        with tempfile.TemporaryDirectory(prefix="qbench-arm64-") as folder:
            python = self._start(environment, Path(folder))
            try:
                answer = subprocess.run(
                    [*python.command, "-P", "-c", _LIST_VERSIONS, *names],
                    env={**os.environ, **python.variables},
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=_IMPORT_SECONDS,
                )
            except subprocess.TimeoutExpired as error:
                late = f"it took more than {_IMPORT_SECONDS:.0f} s"
                raise UsageError(f"{self.name} does not import {', '.join(names)}: {late}") from error
        if answer.returncode:
            last = (answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"])[-1]
            raise UsageError(f"{self.name} does not import {', '.join(names)}: {last}")
        return dict(line.split(" ") for line in answer.stdout.splitlines() if line.count(" ") == 1)
