"""What a measuring process sees of itself: the instruction sets that its kernels chose, allocator, cores, threads.

``machine`` reads what the system says of the hardware; this is read back from a child process that has the
libraries loaded, since a variable, a sandbox or a build can take away what the hardware has.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from qbench.errors import MeasureError
from qbench.machine import amx_tiles, gemm
from qbench.process import child_process

ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")
_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True, kw_only=True)
class Inside:
    """Read back inside a child; what is not told is None.

    ``torch_isa`` is the instruction set of torch's own kernels (``AVX512``), ``onednn_isa`` that of oneDNN in its own
    words, ``mkl_isa`` that of MKL in its own, ``amx_granted`` whether the kernel lets a process use AMX,
    ``onnxruntime_amx`` whether a product of ONNX Runtime used it, ``allocator`` the library whose malloc is mapped
    (``system`` for that of the C library), ``cores`` the affinity, ``threads`` those of torch.
    """

    torch_isa: str | None
    onednn_isa: str | None
    mkl_isa: str | None
    amx_granted: bool | None
    onnxruntime_amx: bool | None
    allocator: str | None
    cores: tuple[int, ...] | None
    threads: int | None


def look_inside(*, limits: child_process.Limits, cores: tuple[int, ...] | None) -> Inside:
    """What a child process that is pinned to ``cores`` sees; raises ``CaseError`` where none can be started."""
    view: Inside = child_process.call(_look_from_child, limits=limits, cores=cores)
    return view


def _look_from_child(*, progress: Any) -> Inside:
    return replace(in_this_process(), onnxruntime_amx=_see_onnxruntime_use_amx())


def in_this_process() -> Inside:
    """What this process sees of torch, which it imports; ONNX Runtime is not tried."""
    import torch

    torch_cpu: Any = torch.cpu
    return Inside(
        torch_isa=torch.backends.cpu.get_cpu_capability(),
        onednn_isa=onednn_isa(_onednn_says()),
        mkl_isa=mkl_isa(_mkl_says()),
        amx_granted=torch_cpu._init_amx() if hasattr(torch_cpu, "_init_amx") and "amx" in _flags() else None,
        onnxruntime_amx=None,
        allocator=allocator_of_this_process(),
        cores=tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else None,
        threads=torch.get_num_threads(),
    )


def allocator(maps: str | None) -> str | None:
    """The allocator whose library is mapped, from the text of ``/proc/self/maps``; None without it.

    A library that a variable names but that is not mapped is not in place, whatever the variable says.
    """
    if maps is None:
        return None
    # address, permissions, offset, device, inode, path: the path is absent for anonymous memory and may hold spaces.
    paths = {fields[5] for line in maps.splitlines() if len(fields := line.split(None, 5)) == 6}
    names = {Path(path).name for path in paths if ".so" in path}
    return next((known for known in ALLOCATORS if any(known in name for name in names)), "system")


# glibc's malloc: its variables and the parameters of mallopt (man 3 mallopt) that they set.
_MALLOC_PARAMETERS = {
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_TOP_PAD_": -2,
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_MMAP_MAX_": -4,
}


def set_malloc(variables: Mapping[str, str]) -> None:
    """Sets what the ``MALLOC_…`` ones of these variables say: glibc reads them as a program starts, which is too late
    for a forked process. Raises ``MeasureError`` where malloc refuses, or is not glibc's."""
    for name, parameter in _MALLOC_PARAMETERS.items():
        if name not in variables:
            continue
        import ctypes

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is None or not mallopt(parameter, int(variables[name])):
            raise MeasureError(f"malloc does not take {name}={variables[name]}: not measured, since it is another case")


def allocator_of_this_process() -> str | None:
    """The library whose malloc this process has mapped; None where the system does not tell."""
    return allocator(_text(_MAPS))


def onednn_isa(output: str | None) -> str | None:
    """The instruction set out of what oneDNN writes when it is verbose: ``onednn_verbose,v1,info,cpu,isa:…``."""
    match = re.search(r"^(?:onednn|dnnl)_verbose,(?:v\d+,)?info,cpu,isa:(.+)$", output or "", flags=re.MULTILINE)
    return match[1].strip() if match else None


def mkl_isa(output: str | None) -> str | None:
    """The instruction set out of what MKL writes when it is verbose: ``… architecture <isa> enabled processors, Lnx``,
    or ``… architecture <isa>, Lnx``."""
    match = re.search(
        r"^MKL_VERBOSE .*? architecture (.+?)(?: enabled processors)?, (?:Lnx|Win|Mac|OSX)", output or "", re.MULTILINE
    )
    return match[1].replace("(R)", "").strip() if match else None


def _see_onnxruntime_use_amx() -> bool | None:
    """Whether a product of bytes left AMX tiles in use; None without AMX, and without ONNX Runtime."""
    if amx_tiles.are_in_use() is None:
        return None
    try:
        gemm.make_onnxruntime_int8(64)()
    except ImportError:
        return None
    return amx_tiles.are_in_use()


def _mkl_says() -> str | None:
    """What MKL writes to stdout over one small product."""
    import torch

    if not torch.backends.mkl.is_available():
        return None
    a = torch.zeros((64, 64))

    def multiply() -> None:
        with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON):
            torch.mm(a, a)

    return read_stdout_of(multiply)


def _onednn_says() -> str | None:
    """What oneDNN writes to stdout over one small product."""
    import torch

    from qbench.torch_private import multiply_bytes

    if not torch.backends.mkldnn.is_available():
        return None
    a = torch.zeros((64, 64), dtype=torch.int8)
    return read_onednn_of(lambda: multiply_bytes(a, a))


def read_onednn_of(call: Callable[[], object]) -> str:
    """What torch's oneDNN writes of the kernels that a call runs, where torch has it."""
    import torch

    def watched() -> None:
        with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
            call()

    return read_stdout_of(watched)


def read_stdout_of(call: Callable[[], object]) -> str:
    """What C code writes to stdout while something is called."""
    with tempfile.TemporaryFile("w+", errors="replace") as file, _stdout_into(file):
        call()
        file.seek(0)
        return file.read()


@contextlib.contextmanager
def _stdout_into(file: IO[str]) -> Iterator[None]:
    """What C code writes to stdout lands in the file."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _flags() -> str:
    return _text(Path("/proc/cpuinfo")) or ""


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
