"""The hosts ``qemu:<CPU>``: a CPU that Debian's qemu-user emulates, with the instructions that it has.

They answer and are never timed: an emulated instruction takes about a hundred times as long, and not each as much
longer. Of x86 CPUs neither AVX-512 nor VNNI is emulated (qemu 7.2), so that any newer one answers as one with AVX2.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from qbench.hosts import cpu_identity
from qbench.hosts.base import Answers, EmulatedPython, Host
from qbench.hosts.qemu import Qemu, identify, read_version

QEMU = Qemu(program="qemu-x86_64", listed_cpu=r"^x86 (\S+)", prefix="qemu:")
_ARM = ("arm", "aarch64")


class Emulated(Host):
    """An x86 CPU by the name that qemu gives it."""

    kind = "emulated"
    title = "an emulated CPU, answers only"

    def __init__(self, cpu: str) -> None:
        self.name = f"{QEMU.prefix}{cpu}"
        self._cpu = cpu

    def missing(self) -> str | None:
        """It takes qemu-user, which must know the CPU, and a machine whose Python it can run."""
        if self._cpu.startswith(_ARM):
            return f"{self.name} is no x86 CPU; ARM CPUs are qemu:arm64-<CPU>, such as qemu:arm64-max"
        return QEMU.explain_missing(self._cpu)

    def why_not(self, backend: str) -> str | None:
        """Whatever runs on this machine can be tried there; that it does not run is an answer, too."""
        return None

    def answers(self, backend: str) -> Answers:
        """All are emulated."""
        return "emulated"

    def environment(self) -> Mapping[str, str]:
        """None: the kernels ask the emulated CPU."""
        return {}

    def start_python(self, folder: Path) -> EmulatedPython:
        """This process' Python on the emulated CPU. ``folder`` gets the ``/proc/cpuinfo`` that programs read there;
        without it they would read this machine's. Raises ``CaseSkipped`` where nothing runs there."""
        command = self._command()
        (folder / "proc").mkdir(exist_ok=True)
        (folder / "proc" / "cpuinfo").write_text(identify(command, cpu_identity.__file__).cpuinfo)
        return EmulatedPython(command=(*command[:-1], "-L", str(folder), command[-1]))

    def describe(self) -> str:
        """The CPU as it names itself, and who emulates it; raises ``CaseSkipped`` where nothing runs there."""
        command = self._command()
        identity = identify(command, cpu_identity.__file__)
        return f"{identity.cpu}, {' '.join(identity.isa)}; {read_version(command[0])}"

    def _command(self) -> tuple[str, ...]:
        return (QEMU.require(), "-cpu", self._cpu, sys.executable)


def find_host(cpu: str) -> Host:
    """The host ``qemu:<cpu>``."""
    from qbench.hosts import emulated_arm

    if cpu.startswith(emulated_arm.NAMES):
        return emulated_arm.EmulatedArm(cpu.removeprefix(emulated_arm.NAMES))
    return Emulated(cpu)
