"""CPUs that qemu-user emulates: which there are, what they say of themselves, what stands in the way."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from qbench import registry, suite
from qbench.errors import CaseSkipped, SuiteError
from qbench.hosts import emulated
from qbench.hosts.emulated import Emulated
from qbench.hosts.emulated_arm import EmulatedArm

HASWELL = Emulated("Haswell")
emulates = pytest.mark.skipif(HASWELL.missing() is not None, reason=f"{HASWELL.missing()}")
ARM = ("arm64", "aarch64", "arm-max")
TEXT = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\nhosts: [native, %s]\n"


def test_any_cpu_of_qemu_is_a_host_of_a_suite():
    """One line registers them all; what is no name of a CPU is an unknown host."""
    assert suite.parse(TEXT % '"qemu:EPYC-Rome-v1"').hosts == ("native", "qemu:EPYC-Rome-v1")
    assert registry.load("host", "qemu:Nehalem").name == "qemu:Nehalem"
    for name in ('"qemu:"', '"qemu:a b"', "qmu"):
        with pytest.raises(SuiteError, match="no host named"):
            suite.parse(TEXT % name)


def test_an_arm_cpu_without_its_prefix_says_how_it_is_spelled():
    """It is no CPU of qemu-x86_64; with the prefix it is a host of another class."""
    assert all("such as qemu:arm64-max" in str(registry.load("host", f"qemu:{cpu}").missing()) for cpu in ARM)
    assert isinstance(registry.load("host", "qemu:arm64-max"), EmulatedArm)


def test_the_emulator_says_whether_it_has_an_x86_cpu(monkeypatch):
    """It alone knows."""
    monkeypatch.setattr(emulated, "QEMU", SimpleNamespace(prefix="qemu:", explain_missing=lambda cpu: f"no {cpu}"))
    assert registry.load("host", "qemu:Nehalem").missing() == "no Nehalem"


def test_the_emulator_itself_is_asked_for_its_version(monkeypatch):
    """Not what it emulates, nor the Python that runs there."""
    identity = SimpleNamespace(cpu="Some CPU", isa=("avx", "avx2"))
    command = ("/usr/bin/qemu-x86_64", "-cpu", "Haswell", sys.executable)
    monkeypatch.setattr(Emulated, "_command", lambda self: command)
    monkeypatch.setattr(emulated, "identify", lambda command, file: identity)
    monkeypatch.setattr(emulated, "read_version", lambda program: f"the version of {program}")
    assert HASWELL.describe() == "Some CPU, avx avx2; the version of /usr/bin/qemu-x86_64"


def test_python_there_reads_the_cpuinfo_of_the_emulated_cpu(monkeypatch, tmp_path):
    """By a folder that stands before the machine's own; the Python is this one."""
    monkeypatch.setattr(Emulated, "_command", lambda self: ("qemu", "-cpu", "Haswell", "python"))
    monkeypatch.setattr(emulated, "identify", lambda command, file: SimpleNamespace(cpuinfo=f"{command[-1]} {file}"))
    for _ in range(2):
        started = HASWELL.start_python(tmp_path)
        assert started.command == ("qemu", "-cpu", "Haswell", "-L", str(tmp_path), "python")
    assert (tmp_path / "proc" / "cpuinfo").read_text() == f"python {emulated.cpu_identity.__file__}"
    assert (HASWELL.why_not("torch"), HASWELL.answers("torch"), HASWELL.environment()) == (None, "emulated", {})


@emulates
def test_an_emulated_cpu_says_what_it_has(tmp_path):
    """Haswell has AVX2 and nothing newer, Nehalem not even that; /proc/cpuinfo there says the same."""
    assert HASWELL.describe().startswith("Intel Core Processor (Haswell), avx avx2")
    assert "avx512" not in HASWELL.describe()
    assert "avx" not in Emulated("Nehalem").describe()
    command = HASWELL.start_python(tmp_path).command
    assert command[-1] == sys.executable
    assert "avx512" not in (tmp_path / "proc" / "cpuinfo").read_text()
    assert str(tmp_path) in command


@emulates
def test_what_qemu_cannot_emulate_is_not_taken_for_it():
    """A CPU with AVX-512 would answer as one with AVX2 under another name."""
    with pytest.raises(CaseSkipped, match="no AVX-512"):
        Emulated("Cascadelake-Server").describe()
