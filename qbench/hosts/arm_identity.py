"""What an ARM CPU says of itself by its own registers, as JSON; a program for an emulated CPU.

``/proc/cpuinfo`` under qemu-user is that of the machine that emulates. Here it is written as Linux writes it on ARM,
from the words that the kernel gives a program (``AT_HWCAP``) and the register MIDR_EL1. Nothing but the standard
library is imported: it runs without site-packages.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys

_AT_HWCAP, _AT_HWCAP2 = 16, 26
# Bit by bit, by the words of Linux: arch/arm64/include/uapi/asm/hwcap.h and arch/arm64/kernel/cpuinfo.c.
_HWCAP = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop sha3 sm3 "
    "sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg"
)
_HWCAP2 = (
    "dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm svebf16 i8mm bf16 "
    "dgh rng bti mte"
)
# Those for which engines have kernels of their own: products of bytes (asimddp, i8mm), half precision, vectors.
_OF_KERNELS = ("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2")
_CODE = bytes.fromhex("000038d5 c0035fd6")  # mrs x0, midr_el1; ret
# qemu's `max` is a CPU of no maker, at which ONNX Runtime 1.32 ends in a segmentation fault. Its cpuinfo names the
# Neoverse N1 (ARM, r4p1), and its own features.
_OF_NO_MAKER, _NEOVERSE_N1 = 0x00, 0x414FD0C1


def list_features(hwcap: int, hwcap2: int) -> list[str]:
    """The words of the bits that are set, in Linux' order."""
    pairs = ((_HWCAP, hwcap), (_HWCAP2, hwcap2))
    return [word for words, bits in pairs for number, word in enumerate(words.split()) if bits >> number & 1]


def write_cpuinfo(midr: int, features: list[str]) -> str:
    """``/proc/cpuinfo`` of one core with that MIDR_EL1: implementer in bits 24 to 31, variant from 20, part from 4,
    revision from 0 (Arm, Architecture Reference Manual, MIDR_EL1)."""
    if midr >> 24 & 0xFF == _OF_NO_MAKER:
        midr = _NEOVERSE_N1
    return (
        f"processor\t: 0\nBogoMIPS\t: 100.00\nFeatures\t: {' '.join(features)}\n"
        f"CPU implementer\t: 0x{midr >> 24 & 0xFF:02x}\nCPU architecture: 8\nCPU variant\t: 0x{midr >> 20 & 0xF:x}\n"
        f"CPU part\t: 0x{midr >> 4 & 0xFFF:03x}\nCPU revision\t: {midr & 0xF}\n\n"
    )


def read_midr() -> int:
    """MIDR_EL1, which Linux and qemu-user let a program read."""
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(_CODE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return int(ctypes.CFUNCTYPE(ctypes.c_uint64)(address)())


def main() -> None:
    """Writes the CPU's number, the instruction sets that kernels ask for, and its ``/proc/cpuinfo``."""
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    midr, features = read_midr(), list_features(getauxval(_AT_HWCAP), getauxval(_AT_HWCAP2))
    isa = [word for word in _OF_KERNELS if word in features]
    facts = {"cpu": f"MIDR_EL1 0x{midr:08x}", "isa": isa, "cpuinfo": write_cpuinfo(midr, features)}
    sys.stdout.write(json.dumps(facts))


if __name__ == "__main__":
    main()
