"""What a CPU says of itself by CPUID."""

from __future__ import annotations

import platform

import pytest

from qbench.hosts.cpu_identity import Cpuid, list_instruction_sets, read_maker, read_name
from qbench.machine import fingerprint

NAME = b"Intel Core Processor (Haswell)".ljust(48, b"\0")
WORDS = [int.from_bytes(NAME[i : i + 4], "little") for i in range(0, 48, 4)]
HASWELL = {
    0: (7, 0x756E6547, 0x6C65746E, 0x49656E69),
    1: (0, 0, 1 << 20 | 1 << 28 | 1 << 12, 0),
    7: (0, 1 << 5, 0, 0),
    0x80000000: (0x80000004, 0, 0, 0),
    **{0x80000002 + i: tuple(WORDS[4 * i : 4 * i + 4]) for i in range(3)},
}


def test_names_and_bits_are_read_from_the_registers():
    """Intel's manual says where they stand; padding and spaces go."""
    assert read_name(HASWELL.__getitem__) == "Intel Core Processor (Haswell)"
    assert list_instruction_sets(HASWELL.__getitem__) == ["avx", "avx2", "fma", "sse4_2"]


def test_a_leaf_that_a_cpu_lacks_is_not_asked():
    """Of a CPU without leaf 7 nothing of leaf 7 is believed; one without a name is named by its maker."""
    old = {**HASWELL, 0: (1, *HASWELL[0][1:]), 0x80000000: (0x80000000, 0, 0, 0)}
    assert "avx2" not in list_instruction_sets(old.__getitem__)
    assert read_name(old.__getitem__) == read_maker(old.__getitem__) == "GenuineIntel"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPUID is an instruction of x86")
def test_this_cpu_says_what_linux_says():
    """The instruction sets that both name."""
    linux = set(fingerprint.isa())
    own = set(list_instruction_sets(Cpuid()))
    assert {"avx2", "avx512f", "avx512_vnni"} & own == {"avx2", "avx512f", "avx512_vnni"} & linux
