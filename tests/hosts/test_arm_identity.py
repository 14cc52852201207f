"""What an ARM CPU's registers say, as Linux writes it in /proc/cpuinfo."""

from __future__ import annotations

import ctypes
import json
import sys
from types import SimpleNamespace

import pytest

from qbench.hosts import arm_identity
from qbench.hosts.arm_identity import list_features, write_cpuinfo


def test_features_are_the_words_of_linux_for_the_bits():
    """As Linux on a Neoverse N1 gives them: AT_HWCAP 0x119ffb has products of bytes (bit 20) and no SVE (bit 22);
    those of AT_HWCAP2 follow."""
    features = list_features(0x119FFB, 1 << 13)
    assert features[:4] == ["fp", "asimd", "aes", "pmull"]
    assert "asimddp" in features
    assert "sve" not in features
    assert features[-1] == "i8mm"
    assert list_features(0x8FB, 0) == ["fp", "asimd", "aes", "pmull", "sha1", "sha2", "crc32", "cpuid"]


def test_cpuinfo_holds_the_parts_of_the_register():
    """A Cortex-A53 r0p4 is implementer 0x41, part 0xd03, revision 4."""
    lines = write_cpuinfo(0x410FD034, ["fp", "asimd"]).splitlines()
    assert lines[2:] == [
        "Features\t: fp asimd",
        "CPU implementer\t: 0x41",
        "CPU architecture: 8",
        "CPU variant\t: 0x0",
        "CPU part\t: 0xd03",
        "CPU revision\t: 4",
        "",
    ]


def test_a_cpu_of_no_maker_gets_the_number_of_one_that_engines_know():
    """qemu's `max`; its features stay its own."""
    text = write_cpuinfo(0x000F0510, ["fp", "sve2"])
    assert "implementer\t: 0x41" in text
    assert "part\t: 0xd0c" in text
    assert "fp sve2" in text


def test_each_part_of_the_register_has_bits_of_its_own():
    """Of the architecture (bits 16 to 19) nothing is told."""
    for midr, words in (
        (0x12345678, ("0x12", "0x3", "0x567", "8")),
        (0xFFFFFFFF, ("0xff", "0xf", "0xfff", "15")),
        (0x01000000, ("0x01", "0x0", "0x000", "0")),
    ):
        lines = write_cpuinfo(midr, []).splitlines()
        implementer, _, variant, part, revision = (line.split()[-1] for line in lines[3:8])
        assert (implementer, variant, part, revision) == words


def test_the_program_writes_what_the_kernel_and_the_register_say(monkeypatch, capsys):
    """Of the features those that engines have kernels for, in that order."""
    words = {16: 1 << 1 | 1 << 20, 26: 1 << 14 | 1 << 13}
    library = SimpleNamespace(getauxval=lambda kind: words[kind])
    monkeypatch.setattr(arm_identity.ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(arm_identity, "read_midr", lambda: 0x0100D034)
    arm_identity.main()
    assert json.loads(capsys.readouterr().out) == {
        "cpu": "MIDR_EL1 0x0100d034",
        "isa": ["asimd", "asimddp", "i8mm", "bf16"],
        "cpuinfo": write_cpuinfo(0x0100D034, ["asimd", "asimddp", "i8mm", "bf16"]),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="memory that may be executed, as Linux gives it")
def test_the_register_is_read_by_an_instruction_in_memory_that_may_be_executed(monkeypatch):
    """It is laid there and called; here it is read in place of that, since another CPU does not have it."""
    code = bytes.fromhex("000038d5c0035fd6")

    def read(result):
        return lambda address: lambda: int.from_bytes(ctypes.string_at(address, 8), "little")

    monkeypatch.setattr(arm_identity.ctypes, "CFUNCTYPE", read)
    assert arm_identity.read_midr() == int.from_bytes(code, "little")
