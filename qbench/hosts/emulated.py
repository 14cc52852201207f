"""The hosts ``qemu:<CPU>``: an x86 CPU that Debian's qemu-user emulates, with the instructions that it has.

They answer and are never timed: an emulated instruction takes about a hundred times as long, and not each as much
longer. What is emulated has neither AVX-512 nor VNNI (qemu 7.2), so that any newer CPU answers as one with AVX2 does.
"""

from __future__ import annotations

import difflib
import functools
import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import CaseSkipped
from qbench.hosts import cpu_identity
from qbench.hosts.base import Answers, Host

INSTALL = "`apt-get install qemu-user` (12 MB to download)"
_X86 = ("x86_64", "AMD64")
_ARM = ("arm64", "aarch64")
_QEMU_X86 = ("qemu-x86_64", "qemu-x86_64-static")
_LISTED_CPU = re.compile(r"^x86 (\S+)", re.MULTILINE)
_IDENTIFY_SECONDS = 60.0
UNSUPPORTED = "warning: TCG doesn't support"  # begins a line that names what the real CPU has and the emulated has not


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What an emulated CPU says of itself: its name, its instruction sets, its ``/proc/cpuinfo``."""

    cpu: str
    isa: tuple[str, ...]
    cpuinfo: str


class Emulated(Host):
    """An x86 CPU by the name that qemu gives it."""

    kind = "emulated"
    title = "an emulated CPU, answers only"

    def __init__(self, cpu: str) -> None:
        self.name = f"qemu:{cpu}"
        self._cpu = cpu

    def missing(self) -> str | None:
        """It takes qemu-user, which must know the CPU, and a machine whose Python it can run."""
        if self._cpu.startswith(_ARM):
            return (
                f"{self.name}: ARM CPUs are not emulated, as that takes Python and the engines built for ARM; on an "
                "ARM machine `qbench portability RUN --here` tells what the artifacts answer"
            )
        if sys.platform != "linux" or platform.machine() not in _X86:
            return f"qemu-user emulates {self.name} on x86 Linux alone ({platform.system()} {platform.machine()} here)"
        program = find_program(_QEMU_X86)
        if program is None:
            return f"qemu-x86_64 is not installed: {INSTALL}"
        known = list_cpus(program)
        if self._cpu in known:
            return None
        near = difflib.get_close_matches(self._cpu, known, n=1)
        hint = f"; did you mean qemu:{near[0]}?" if near else ""
        return f"{Path(program).name} knows no CPU '{self._cpu}'{hint} (`{Path(program).name} -cpu help` lists them)"

    def why_not(self, backend: str) -> str | None:
        """Whatever runs on this machine can be tried there; that it does not run is an answer, too."""
        return None

    def answers(self, backend: str) -> Answers:
        """All are emulated."""
        return "emulated"

    def environment(self) -> Mapping[str, str]:
        """None: the kernels ask the emulated CPU."""
        return {}

    def start_python(self, folder: Path) -> tuple[str, ...]:
        """This process' Python on the emulated CPU. ``folder`` gets the ``/proc/cpuinfo`` that programs read there;
        without it they would read this machine's. Raises ``CaseSkipped`` where nothing runs there."""
        command = (*self._command(), sys.executable)
        identity = identify(command)
        (folder / "proc").mkdir(exist_ok=True)
        (folder / "proc" / "cpuinfo").write_text(identity.cpuinfo)
        return (*command[:-1], "-L", str(folder), command[-1])

    def describe(self) -> str:
        """The CPU as it names itself, and who emulates it; raises ``CaseSkipped`` where nothing runs there."""
        identity = identify((*self._command(), sys.executable))
        return f"{identity.cpu}, {' '.join(identity.isa)}; {read_version(self._command()[0])}"

    def _command(self) -> tuple[str, ...]:
        program = find_program(_QEMU_X86)
        if program is None:
            raise CaseSkipped(f"qemu-x86_64 is not installed: {INSTALL}")
        return (program, "-cpu", self._cpu)


def find_host(cpu: str) -> Emulated:
    """The host ``qemu:<cpu>``."""
    return Emulated(cpu)


def find_program(names: tuple[str, ...] = _QEMU_X86) -> str | None:
    """The path of the first of these programs that is installed; None where none is."""
    return next((path for name in names if (path := shutil.which(name)) is not None), None)


@functools.cache
def list_cpus(program: str) -> tuple[str, ...]:
    """The x86 CPUs that a qemu-x86_64 knows; empty where it does not tell."""
    try:
        listed = subprocess.run([program, "-cpu", "help"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(_LISTED_CPU.findall(listed.stdout))


@functools.cache
def read_version(program: str) -> str:
    """``qemu 7.2.22``; ``qemu`` where it does not tell."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "qemu"
    version = re.search(r"version (\S+)", said.stdout)
    return f"qemu {version[1]}" if version else "qemu"


@functools.cache
def identify(python: tuple[str, ...]) -> Identity:
    """What the CPU that a Python command runs on says of itself; raises ``CaseSkipped`` where it does not run, and
    where the emulation leaves out the instructions that the CPU is asked for."""
    try:
        said = subprocess.run(
            [*python, "-I", "-S", cpu_identity.__file__],
            capture_output=True,
            text=True,
            check=False,
            timeout=_IDENTIFY_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CaseSkipped(f"not emulated: {python[0]} does not run Python: {error}") from error
    warnings = [line for line in said.stderr.splitlines() if UNSUPPORTED in line]
    if said.returncode != 0:
        others = [line for line in said.stderr.splitlines() if UNSUPPORTED not in line]
        last = f": {others[-1]}" if others else ""
        raise CaseSkipped(f"not emulated: {' '.join(python)} ended with exit code {said.returncode}{last}")
    if any("avx512" in line for line in warnings):
        raise CaseSkipped(
            f"not emulated: {read_version(python[0])} has no AVX-512, without which this CPU answers as qemu:Haswell"
        )
    facts = json.loads(said.stdout)
    return Identity(cpu=facts["cpu"], isa=tuple(facts["isa"]), cpuinfo=facts["cpuinfo"])
