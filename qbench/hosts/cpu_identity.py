"""What the CPU of this process says of itself by its own instruction for that, as JSON; a program for an emulated CPU.

``/proc/cpuinfo`` under qemu-user is that of the machine that emulates: only CPUID tells which instructions there are.
It runs without site-packages, so it imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from collections.abc import Callable

Registers = tuple[int, int, int, int]  # eax, ebx, ecx, edx
# (leaf, register, bit) of each instruction set, by the words of Linux. Intel, Software Developer's Manual 2A, CPUID.
_BITS = {
    "sse4_2": (1, 2, 20),
    "avx": (1, 2, 28),
    "fma": (1, 2, 12),
    "f16c": (1, 2, 29),
    "avx2": (7, 1, 5),
    "bmi2": (7, 1, 8),
    "avx512f": (7, 1, 16),
    "avx512_vnni": (7, 2, 11),
    "amx_int8": (7, 3, 25),
}
# void cpuid(uint32 leaf, uint32 subleaf, uint32 *out), for the calling convention of System V:
# push rbx; mov eax, edi; mov ecx, esi; mov r8, rdx; cpuid; store eax, ebx, ecx, edx at [r8]; pop rbx; ret
_CODE = bytes.fromhex("53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3")


class Cpuid:
    """The instruction CPUID; called with a leaf it gives the registers of that leaf, subleaf 0."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._memory.write(_CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        pointer = ctypes.POINTER(ctypes.c_uint32)
        self._function = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, pointer)(address)

    def __call__(self, leaf: int) -> Registers:
        """The four registers."""
        out = (ctypes.c_uint32 * 4)()
        self._function(leaf, 0, out)
        return out[0], out[1], out[2], out[3]


def read_name(cpuid: Callable[[int], Registers]) -> str:
    """The name that the CPU gives itself; its maker where it has none."""
    if cpuid(0x80000000)[0] >= 0x80000004:
        words = [word for leaf in (0x80000002, 0x80000003, 0x80000004) for word in cpuid(leaf)]
        name = b"".join(word.to_bytes(4, "little") for word in words).split(b"\0")[0].decode("ascii", "replace")
        if name.strip():
            return " ".join(name.split())
    return read_maker(cpuid)


def read_maker(cpuid: Callable[[int], Registers]) -> str:
    """``GenuineIntel``, ``AuthenticAMD``."""
    _, ebx, ecx, edx = cpuid(0)
    return b"".join(word.to_bytes(4, "little") for word in (ebx, edx, ecx)).decode("ascii", "replace")


def list_instruction_sets(cpuid: Callable[[int], Registers]) -> list[str]:
    """Those of ``_BITS`` that the CPU has, sorted."""
    most = cpuid(0)[0]
    return sorted(
        name for name, (leaf, register, bit) in _BITS.items() if leaf <= most and cpuid(leaf)[register] >> bit & 1
    )


def main() -> None:
    """Writes the CPU's name, its instruction sets and a ``/proc/cpuinfo`` of one core that says the same."""
    cpuid = Cpuid()
    cpu, isa = read_name(cpuid), list_instruction_sets(cpuid)
    lines = {"processor": "0", "vendor_id": read_maker(cpuid), "model name": cpu, "flags": " ".join(["fpu sse2", *isa])}
    cpuinfo = "".join(f"{key}\t: {value}\n" for key, value in lines.items()) + "\n"
    sys.stdout.write(json.dumps({"cpu": cpu, "isa": isa, "cpuinfo": cpuinfo}))


if __name__ == "__main__":
    main()
