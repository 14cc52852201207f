"""What a process imports before it works, and which cores it may use meanwhile, and where it finds it.

ONNX Runtime chooses its int8 kernels as it is imported. From 1.32 on it takes those for AMX only if the process may use
two cores then: a thread of it loads tiles on one core, moves to the next and looks whether they are the same (seen with
strace and in its code). A process that may use one core gets the kernels for VNNI, whatever it may use later.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator

CORES = "QBENCH_IMPORT_CORES"  # the variable: numbers of cores, separated by commas
PATHS = "QBENCH_IMPORT_PATHS"  # the variable: folders of packages, separated as in PATH
_CHOOSING = ("onnxruntime",)  # others do not choose by cores, and torch takes a second


def import_modules(names: Iterable[str]) -> None:
    """Imports them; what is missing is told where it is needed. Where the variable names cores, this thread may use
    those while a library is imported that chooses by them. Where one names folders, what is not imported yet comes from
    those alone; a process that had imported a library before would keep it."""
    if paths := os.environ.get(PATHS):
        sys.path[:] = paths.split(os.pathsep)
    for name in names:
        with contextlib.suppress(ImportError), _named_cores() if name in _CHOOSING else contextlib.nullcontext():
            importlib.import_module(name)


def import_ahead(names: Iterable[str]) -> threading.Thread:
    """Imports them in the thread that it returns, while this one waits for others."""
    thread = threading.Thread(target=import_modules, args=(tuple(names),), name="import-ahead", daemon=True)
    thread.start()
    return thread


def name_cores(cores: Iterable[int]) -> dict[str, str]:
    """The variable with which a process imports on these cores."""
    return {CORES: ",".join(map(str, cores))}


def name_paths(paths: Iterable[str]) -> dict[str, str]:
    """The variable with which a process imports from these folders alone."""
    return {PATHS: os.pathsep.join(paths)}


def name_own_cores() -> dict[str, str]:
    """The same for the cores that this process may use; nothing where the system does not tell."""
    return name_cores(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else {}


@contextlib.contextmanager
def _named_cores() -> Iterator[None]:
    """Nothing changes without the variable, and where the system allows none of its cores."""
    cores = {int(core) for core in os.environ.get(CORES, "").split(",") if core.strip().isdecimal()}
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    own = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):  # none are named, or none of this system
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
