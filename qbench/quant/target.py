"""The kinds of CPU that an artifact is made for: whose kernels decide what of its weights is narrowed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

NATIVE = "native"
# Kinds by what int8 kernels do there. avx2, avx512 (without VNNI): two products are added in 16 bits, which saturate;
# vnni (AVX512-VNNI, AVX-VNNI, AMX): in 32 bits; arm: sums are exact.
Cpu = Literal["native", "avx2", "avx512", "vnni", "arm"]
CPUS: tuple[Cpu, ...] = get_args(Cpu)
ADD_IN_16_BITS: tuple[Cpu, ...] = ("avx2", "avx512")


def adds_in_16_bits(target: Collection[str]) -> bool:
    """Whether kernels of one of these CPUs add products in 16 bits; what this machine's do is another question."""
    return any(cpu in target for cpu in ADD_IN_16_BITS)


def without_native(target: Collection[str]) -> tuple[str, ...]:
    """The kinds that say more than "this machine", whose kernels are always asked."""
    return tuple(cpu for cpu in target if cpu != NATIVE)


def name_cpus(target: Collection[str], only: Collection[str] = CPUS) -> str:
    """``avx2 and arm``: those of a target that are in ``only``."""
    return " and ".join(cpu for cpu in target if cpu in only)
