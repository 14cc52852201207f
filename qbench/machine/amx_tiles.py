"""Whether a thread's AMX tiles hold values: what remains where int8 products were computed in them."""

from __future__ import annotations

import ctypes
import functools
import mmap
import sys
from collections.abc import Callable
from pathlib import Path

from qbench.machine import fingerprint

# XGETBV with ECX = 1 gives the state components of this thread that are in use, as EDX:EAX; bit 18 are the tiles (Intel
# SDM, volume 1, sections 13.2 and 13.3): mov ecx, 1; xgetbv; shl rdx, 32; or rax, rdx; ret.
_READ_STATE_IN_USE = bytes.fromhex("b901000000 0f01d0 48c1e220 4809d0 c3")
_TILES = 1 << 18


def are_in_use(root: Path = fingerprint.ROOT) -> bool | None:
    """Whether the tiles of this thread hold values. That shows the use of AMX by libraries that leave them so, as ONNX
    Runtime does and oneDNN does not. None without AMX, and where the system lets no process read it."""
    if sys.platform != "linux" or "amx_tile" not in fingerprint.isa(root):
        return None
    reader = _load_reader()
    return None if reader is None else bool(reader[1]() & _TILES)


@functools.cache
def _load_reader() -> tuple[mmap.mmap, Callable[[], int]] | None:
    """The memory that holds the instruction, and that as a function; None where no memory may be executed."""
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    memory.write(_READ_STATE_IN_USE)
    return memory, ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
