"""What a CPU says of itself by CPUID."""

from __future__ import annotations

import json
import platform

import pytest

from qbench.hosts import cpu_identity
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


# Intel, Software Developer's Manual 2A, CPUID: (leaf, register of eax, ebx, ecx, edx, bit).
BITS = {
    "sse4_2": (1, 2, 20), "avx": (1, 2, 28), "fma": (1, 2, 12), "f16c": (1, 2, 29), "avx2": (7, 1, 5),
    "bmi2": (7, 1, 8), "avx512f": (7, 1, 16), "avx512_vnni": (7, 2, 11), "amx_int8": (7, 3, 25),
}  # fmt: skip


@pytest.mark.parametrize(("name", "place"), BITS.items())
def test_each_instruction_set_has_a_bit_of_its_own(name, place):
    """With that bit alone the CPU has nothing else; where it counts no leaf so high, the bit says nothing."""
    leaf, register, bit = place
    for most, expected in ((leaf, [name]), (leaf - 1, [])):
        registers = {0: (most, 0, 0, 0), 1: (0, 0, 0, 0), 7: (0, 0, 0, 0)}
        registers[leaf] = tuple((1 << bit) * (number == register) for number in range(4))
        assert list_instruction_sets(registers.__getitem__) == expected


def test_a_name_is_read_up_to_its_end_and_blanks_are_none():
    """It may fill all three leaves; what is no text of it is kept out."""
    for name, expected in (
        (b"A".ljust(47, b"B") + b"C", "A" + 46 * "B" + "C"),
        (b"  Some   CPU \0after it".ljust(48, b"\0"), "Some CPU"),
        (b"   ".ljust(48, b"\0"), "GenuineIntel"),
        (b"\xffCPU".ljust(48, b"\0"), "\ufffdCPU"),
    ):
        words = [int.from_bytes(name[at : at + 4], "little") for at in range(0, 48, 4)]
        named = {0x80000002 + leaf: tuple(words[4 * leaf : 4 * leaf + 4]) for leaf in range(3)}
        assert read_name({**HASWELL, **named}.__getitem__) == expected
    assert read_name({**HASWELL, 0x80000000: (0x80000003, 0, 0, 0)}.__getitem__) == "GenuineIntel"


def test_the_program_writes_a_cpuinfo_that_says_the_same(monkeypatch, capsys):
    """As Linux writes one, of one core."""
    monkeypatch.setattr(cpu_identity, "Cpuid", lambda: HASWELL.__getitem__)
    cpu_identity.main()
    name = "Intel Core Processor (Haswell)"
    assert json.loads(capsys.readouterr().out) == {
        "cpu": name,
        "isa": ["avx", "avx2", "fma", "sse4_2"],
        "cpuinfo": f"processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: {name}\n"
        "flags\t: fpu sse2 avx avx2 fma sse4_2\n\n",
    }


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CPUID is an instruction of x86")
def test_this_cpu_says_what_linux_says():
    """The instruction sets that both name."""
    linux = set(fingerprint.isa())
    own = set(list_instruction_sets(Cpuid()))
    assert {"avx2", "avx512f", "avx512_vnni"} & own == {"avx2", "avx512f", "avx512_vnni"} & linux
