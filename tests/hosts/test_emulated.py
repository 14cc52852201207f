"""CPUs that qemu-user emulates: which there are, what they say of themselves, what stands in the way."""

from __future__ import annotations

import sys

import pytest

from qbench import registry, suite
from qbench.errors import CaseSkipped, SuiteError
from qbench.hosts import emulated
from qbench.hosts.emulated import Emulated, find_program, identify

HASWELL = Emulated("Haswell")
emulates = pytest.mark.skipif(HASWELL.missing() is not None, reason=f"{HASWELL.missing()}")
TEXT = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\nhosts: [native, %s]\n"


def test_any_cpu_of_qemu_is_a_host_of_a_suite():
    """One line registers them all; what is no name of a CPU is an unknown host."""
    assert suite.parse(TEXT % '"qemu:EPYC-Rome-v1"').hosts == ("native", "qemu:EPYC-Rome-v1")
    assert registry.load("host", "qemu:Nehalem").name == "qemu:Nehalem"
    for name in ('"qemu:"', '"qemu:a b"', "qmu"):
        with pytest.raises(SuiteError, match="no host named"):
            suite.parse(TEXT % name)


def test_a_machine_without_qemu_says_how_to_get_it(monkeypatch):
    """The reason of a skipped case is something to do."""
    monkeypatch.setattr(emulated, "find_program", lambda names=(): None)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert "apt-get install qemu-user" in str(HASWELL.missing())
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert "on x86 Linux alone" in str(HASWELL.missing())


def test_an_arm_cpu_is_not_emulated_and_says_what_to_do():
    """It is no CPU of qemu-x86_64, however it is spelled."""
    assert all("--here" in str(Emulated(cpu).missing()) for cpu in ("arm64-max", "aarch64"))


@emulates
def test_a_cpu_that_qemu_does_not_know_is_named_with_its_neighbour():
    """A slip of the pen is told with what was meant."""
    assert "did you mean qemu:Haswell?" in str(Emulated("Hasswell").missing())


@emulates
def test_an_emulated_cpu_says_what_it_has(tmp_path):
    """Haswell has AVX2 and nothing newer, Nehalem not even that; /proc/cpuinfo there says the same."""
    assert HASWELL.describe().startswith("Intel Core Processor (Haswell), avx avx2")
    assert "avx512" not in HASWELL.describe()
    assert "avx" not in Emulated("Nehalem").describe()
    command = HASWELL.start_python(tmp_path)
    assert command[-1] == sys.executable
    assert "avx512" not in (tmp_path / "proc" / "cpuinfo").read_text()
    assert str(tmp_path) in command


@emulates
def test_what_qemu_cannot_emulate_is_not_taken_for_it():
    """A CPU with AVX-512 would answer as one with AVX2 under another name."""
    with pytest.raises(CaseSkipped, match="no AVX-512"):
        Emulated("Cascadelake-Server").describe()


def test_a_program_that_does_not_run_is_told_with_its_last_words():
    """Such as a qemu that is too old for this Python."""
    with pytest.raises(CaseSkipped, match="exit code 3: no such luck"):
        identify((sys.executable, "-c", "import sys; print('no such luck', file=sys.stderr); sys.exit(3)"))
    with pytest.raises(CaseSkipped, match="does not run Python"):
        identify(("/nowhere/qemu",))
    assert find_program(("no-such-program",)) is None
