"""The kinds of CPU that an artifact is made for: whose kernels decide what of its weights is narrowed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

NATIVE = "native"
# Kinds by what int8 kernels do there. avx2, avx512 (without VNNI): two products are added in 16 bits, which saturate;
# vnni (AVX512-VNNI, AVX-VNNI, AMX): in 32 bits; arm: sums are exact, but of two weights of -128 on ONNX Runtime.
Cpu = Literal["native", "avx2", "avx512", "vnni", "arm"]
CPUS: tuple[Cpu, ...] = get_args(Cpu)
_MARCH: dict[str, str] = {"avx2": "haswell", "avx512": "skylake-avx512", "vnni": "haswell"}
ADD_IN_16_BITS: tuple[Cpu, ...] = ("avx2", "avx512")
# What static and qat are for where a suite names no target, on x86; guide/hosts.md has what that costs.
EVERY_X86: tuple[Cpu, ...] = ("avx2", "avx512", "vnni")


def adds_in_16_bits(target: Collection[str]) -> bool:
    """Whether kernels of one of these CPUs add products in 16 bits; what this machine's do is another question."""
    return any(cpu in target for cpu in ADD_IN_16_BITS)


def without_native(target: Collection[str]) -> tuple[str, ...]:
    """The kinds that say more than "this machine", whose kernels are always asked."""
    return tuple(cpu for cpu in target if cpu != NATIVE)


def oldest_march(target: Collection[str]) -> str | None:
    """The CPU, by the compiler's name, that machine code for a target is compiled for; None: this machine. A CPU with
    VNNI may be one without AVX-512 (AVX-VNNI)."""
    x86 = [cpu for cpu in target if cpu in _MARCH]
    return None if not x86 else _MARCH["avx512"] if x86 == ["avx512"] else _MARCH["avx2"]


def loads_on(target: Collection[str], host: str) -> bool:
    """Whether machine code for a target loads on a CPU of that kind."""
    march = oldest_march(target)
    return march is not None and host in (("avx512",) if march == _MARCH["avx512"] else tuple(_MARCH))


def name_cpus(target: Collection[str], only: Collection[str] = CPUS) -> str:
    """``avx2, vnni and arm``: those of a target that are in ``only``."""
    names = [cpu for cpu in target if cpu in only]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
