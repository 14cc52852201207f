"""What an ARM CPU's registers say, as Linux writes it in /proc/cpuinfo."""

from __future__ import annotations

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
