"""Kinds of CPU: which add in 16 bits, and what machine code is compiled for."""

from __future__ import annotations

import pytest

from qbench.quant import target


@pytest.mark.parametrize(
    ("cpus", "in_16_bits", "march"),
    [
        ((), False, None),
        (("arm",), False, None),
        (("vnni",), False, "haswell"),
        (("avx2", "vnni", "arm"), True, "haswell"),
        (("avx512",), True, "skylake-avx512"),
        (("avx512", "vnni"), True, "haswell"),
    ],
)
def test_the_oldest_cpu_decides(cpus: tuple[str, ...], in_16_bits: bool, march: str | None) -> None:
    """A CPU with VNNI may have no AVX-512, so code for it is that for AVX2."""
    assert target.adds_in_16_bits(cpus) is in_16_bits
    assert target.oldest_march(cpus) == march


def test_code_loads_on_what_it_was_compiled_for_and_on_newer_cpus() -> None:
    """Never on ARM, and nowhere for certain where it was compiled for the machine at hand."""
    hosts = ("avx2", "avx512", "vnni", "arm")
    assert [target.loads_on(("avx2",), host) for host in hosts] == [True, True, True, False]
    assert [target.loads_on(("avx512",), host) for host in hosts] == [False, True, False, False]
    assert not any(target.loads_on(cpus, host) for cpus in ((), ("arm",)) for host in hosts)


def test_this_machine_is_no_kind_beside_itself() -> None:
    """``native`` adds nothing to a target; names are told in its order."""
    assert target.without_native(("native", "avx2", "arm")) == ("avx2", "arm")
    assert target.name_cpus(("avx2", "vnni", "arm")) == "avx2, vnni and arm"
    assert target.name_cpus(("avx2", "arm"), target.ADD_IN_16_BITS) == "avx2"
