"""The programs of qemu-user: what they list, and what stands in the way."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from qbench.errors import CaseSkipped
from qbench.hosts import cpu_identity
from qbench.hosts.emulated import QEMU
from qbench.hosts.emulated_arm import QEMU as QEMU_ARM
from qbench.hosts.qemu import UNSUPPORTED, Identity, find_program, identify, list_cpus, read_version

X86_HELP = (
    "Available CPUs:\nx86 486\nx86 Haswell               (alias configured by machine type)\n\nRecognized:\n  avx2\n"
)
ARM_HELP = "Available CPUs:\n  cortex-a53\n  max\n"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that puts programs of qemu-user on the path, and nothing else is there: each lists CPUs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")

    def install(name, listed):
        (tmp_path / f"{name}.txt").write_text(listed)
        words = (
            f'case "$1" in --version) echo "{name} version 7.2.22 (Debian)";; *) /bin/cat {tmp_path}/{name}.txt;; esac'
        )
        (tmp_path / name).write_text(f"#!/bin/sh\n{words}\n")
        (tmp_path / name).chmod(0o755)

    return install


def test_a_machine_without_qemu_says_how_to_get_it(install, monkeypatch):
    """The reason of a skipped case is something to do; what is no x86 Linux cannot do it."""
    assert "qemu-x86_64 is not installed: `apt-get install qemu-user`" in str(QEMU.explain_missing("Haswell"))
    with pytest.raises(CaseSkipped, match="qemu-aarch64 is not installed"):
        QEMU_ARM.require()
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert "emulates qemu:arm64-max on x86 Linux alone" in str(QEMU_ARM.explain_missing("max"))


@pytest.mark.parametrize(
    ("qemu", "listed", "known", "slip", "meant"),
    [
        (QEMU, X86_HELP, ("486", "Haswell"), "Hasswell", "qemu:Haswell"),
        (QEMU_ARM, ARM_HELP, ("cortex-a53", "max"), "cortex-a52", "qemu:arm64-cortex-a53"),
    ],
)
def test_a_cpu_that_qemu_does_not_know_is_told_with_what_was_meant(install, qemu, listed, known, slip, meant):
    """By what the program lists, which is not alike for x86 and ARM: a flag of x86 is no CPU."""
    install(qemu.program, listed)
    assert list_cpus(qemu.require(), qemu.listed_cpu) == known
    assert all(qemu.explain_missing(cpu) is None for cpu in known)
    assert f"knows no CPU '{slip}'; did you mean {meant}?" in str(qemu.explain_missing(slip))
    assert qemu.explain_missing("avx2") is not None
    assert read_version(qemu.require()) == "qemu 7.2.22"


def test_the_statically_linked_program_is_taken_too(install):
    """Debian has it in another package; a program that is not there is none."""
    install("qemu-aarch64-static", ARM_HELP)
    assert QEMU_ARM.explain_missing("max") is None
    assert find_program(("no-such-program",)) is None
    assert replace(QEMU, program="no-such-program").find() is None


def test_a_program_that_does_not_run_is_told_with_its_last_words():
    """Such as a qemu that is too old for this Python."""
    with pytest.raises(CaseSkipped, match="exit code 3: no such luck"):
        identify(
            (sys.executable, "-c", "import sys; print('no such luck', file=sys.stderr); sys.exit(3)"),
            cpu_identity.__file__,
        )
    with pytest.raises(CaseSkipped, match="does not run Python"):
        identify(("/nowhere/qemu",), cpu_identity.__file__)
    assert read_version("/nowhere/qemu") == "qemu"


def write_python(folder, *, out="", err="", code=0):
    """A command that takes a program as Python does, and says this."""
    words = f"cat <<'E'\n{out}\nE\ncat >&2 <<'E'\n{err}\nE\nexit {code}\n"
    program = folder / f"python{len(list(folder.iterdir()))}"
    program.write_text(f"#!/bin/sh\n[ \"$1 $2\" = '-I -S' ] || exit 9\n{words}")
    program.chmod(0o755)
    return (str(program),)


FACTS = '{"cpu": "GenuineIntel", "isa": ["avx2", "fma"], "cpuinfo": "processor: 0"}'
NO_AVX2, NO_AVX512 = (f"qemu: {UNSUPPORTED} requested feature: CPUID.07H:EBX.{name}" for name in ("avx2", "avx512f"))


def test_an_emulated_cpu_is_known_by_what_it_says(tmp_path):
    """What else it lacks is told in passing and no reason."""
    identity = identify(write_python(tmp_path, out=FACTS, err=NO_AVX2), cpu_identity.__file__)
    assert identity == Identity(cpu="GenuineIntel", isa=("avx2", "fma"), cpuinfo="processor: 0")


def test_a_cpu_that_is_emulated_without_what_it_is_asked_for_is_refused(tmp_path):
    """Its answers would be those of another one."""
    with pytest.raises(CaseSkipped, match="^not emulated: qemu has no AVX-512, without which this CPU answers as"):
        identify(write_python(tmp_path, out=FACTS, err=NO_AVX512), cpu_identity.__file__)


@pytest.mark.parametrize(
    ("err", "last"), [("", ""), (NO_AVX2, ""), (f"first\nno such luck\n{NO_AVX2}", ": no such luck")]
)
def test_the_last_words_are_not_those_about_features(tmp_path, err, last):
    """Nothing is added where there are no others."""
    python = write_python(tmp_path, err=err or NO_AVX2, code=4)
    with pytest.raises(CaseSkipped) as error:
        identify(python, cpu_identity.__file__)
    assert str(error.value) == f"not emulated: {python[0]} ended with exit code 4{last}"


def test_a_cpu_that_is_like_none_is_told_without_a_guess(install):
    """And how to list those that there are."""
    install("qemu-x86_64", X86_HELP)
    name = "qemu-x86_64"
    assert (
        QEMU.explain_missing("nothing-alike") == f"{name} knows no CPU 'nothing-alike' (`{name} -cpu help` lists them)"
    )
    assert list_cpus("/nowhere/qemu", QEMU.listed_cpu) == ()


class Hanging:
    """Programs that end after the time that they have, which is told in ``seconds``."""

    def __init__(self):
        self.seconds = []

    def __call__(self, command, *, timeout, **options):
        self.seconds.append(timeout)
        raise subprocess.TimeoutExpired(command, timeout)


def test_a_program_has_a_minute_to_answer(monkeypatch):
    """One that hangs is taken for one that does not tell."""
    hanging = Hanging()
    monkeypatch.setattr(subprocess, "run", hanging)
    assert list_cpus("hanging-qemu", QEMU.listed_cpu) == ()
    assert read_version("hanging-qemu") == "qemu"
    with pytest.raises(CaseSkipped, match="hanging-qemu does not run Python: .* timed out after 60"):
        identify(("hanging-qemu",), cpu_identity.__file__)
    assert hanging.seconds == [60.0] * 3


def test_what_a_program_says_counts_whatever_its_exit_code_is(tmp_path):
    """Versions of qemu differ in that."""
    program = tmp_path / "qemu"
    program.write_text("#!/bin/sh\necho x86 Haswell version 7.2\nexit 1\n")
    program.chmod(0o755)
    assert list_cpus(str(program), QEMU.listed_cpu) == ("Haswell",)
    assert read_version(str(program)) == "qemu 7.2"
