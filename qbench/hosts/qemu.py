"""qemu-user: its programs, the CPUs that they know, and what an emulated CPU says of itself."""

from __future__ import annotations

import difflib
import functools
import json
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import CaseSkipped

INSTALL = "`apt-get install qemu-user` (12 MB to download)"
UNSUPPORTED = "warning: TCG doesn't support"  # begins a line that names what the real CPU has and the emulated has not
_X86 = ("x86_64", "AMD64")
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Qemu:
    """A program of qemu-user for one kind of CPU: its name, the pattern of a line of ``-cpu help`` that names a CPU,
    and how the names of hosts begin."""

    program: str
    listed_cpu: str
    prefix: str

    def find(self) -> str | None:
        """Its path, or that of the form that Debian links statically; None where neither is installed."""
        return find_program((self.program, f"{self.program}-static"))

    def require(self) -> str:
        """Its path; raises ``CaseSkipped`` where it is not installed."""
        if (path := self.find()) is None:
            raise CaseSkipped(f"{self.program} is not installed: {INSTALL}")
        return path

    def explain_missing(self, cpu: str) -> str | None:
        """Why it does not emulate a CPU on this machine and what to do; None where it does."""
        name = f"{self.prefix}{cpu}"
        if sys.platform != "linux" or platform.machine() not in _X86:
            return f"qemu-user emulates {name} on x86 Linux alone ({platform.system()} {platform.machine()} here)"
        path = self.find()
        if path is None:
            return f"{self.program} is not installed: {INSTALL}"
        known = list_cpus(path, self.listed_cpu)
        if cpu in known:
            return None
        near = difflib.get_close_matches(cpu, known, n=1)
        hint = f"; did you mean {self.prefix}{near[0]}?" if near else ""
        return f"{Path(path).name} knows no CPU '{cpu}'{hint} (`{Path(path).name} -cpu help` lists them)"


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What an emulated CPU says of itself: its name, its instruction sets, its ``/proc/cpuinfo``."""

    cpu: str
    isa: tuple[str, ...]
    cpuinfo: str


def find_program(names: tuple[str, ...]) -> str | None:
    """The path of the first of these programs that is installed; None where none is."""
    return next((path for name in names if (path := shutil.which(name)) is not None), None)


@functools.cache
def list_cpus(program: str, listed_cpu: str) -> tuple[str, ...]:
    """The CPUs that a program of qemu-user lists by lines of that pattern; empty where it does not tell."""
    try:
        answer = subprocess.run(
            [program, "-cpu", "help"], capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(re.findall(listed_cpu, answer.stdout, re.MULTILINE))


@functools.cache
def read_version(program: str) -> str:
    """``qemu 7.2.22``; ``qemu`` where it does not tell."""
    try:
        answer = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return "qemu"
    version = re.search(r"version (\S+)", answer.stdout)
    return f"qemu {version[1]}" if version else "qemu"


@functools.cache
def identify(python: tuple[str, ...], program: str) -> Identity:
    """What the CPU that a Python command runs on says of itself by a ``program`` (the file of a module) that writes an
    ``Identity`` as JSON; raises ``CaseSkipped`` where it does not run, and where the emulation leaves out the
    instructions that the CPU is asked for."""
    try:
        answer = subprocess.run(
            [*python, "-I", "-S", program], capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CaseSkipped(f"not emulated: {python[0]} does not run Python: {error}") from error
    lines = answer.stderr.splitlines()
    if answer.returncode != 0:
        others = [line for line in lines if UNSUPPORTED not in line]
        last = f": {others[-1]}" if others else ""
        raise CaseSkipped(f"not emulated: {' '.join(python)} ended with exit code {answer.returncode}{last}")
    if any(UNSUPPORTED in line and "avx512" in line for line in lines):
        raise CaseSkipped(
            f"not emulated: {read_version(python[0])} has no AVX-512, without which this CPU answers as qemu:Haswell"
        )
    facts = json.loads(answer.stdout)
    return Identity(cpu=facts["cpu"], isa=tuple(facts["isa"]), cpuinfo=facts["cpuinfo"])
