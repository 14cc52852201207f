"""Work on a large graph in a process of its own: its memory ends with it, and what follows is a long loop."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from qbench.errors import QbenchError
from qbench.files import atomic

LARGE = 4 * 2**20  # bytes of a model; a process takes a second to start, and smaller graphs are done in less
_MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD of malloc.h
SECONDS = 3600.0  # that the work on one graph may take


def run(file: Path, function: Callable[..., Any], *args: Any, written: Iterable[Path] = ()) -> Any:
    """What ``function(*args)`` returns, or raises of qbench's errors; in a process of its own where ``is_apart`` says
    so. ``written``: the files that it makes; an interrupted process leaves nothing beside them."""
    from qbench.process import child
    from qbench.process.child_process import Limits, Worker

    if not is_apart(file):
        return function(*args)
    try:
        with Worker(child.Function, _caught, limits=Limits(seconds=SECONDS), fresh=True, name="graph") as worker:
            worker.ready()
            value, error = worker.ask("run", (function, args))
    finally:
        for parent in {path.parent for path in written}:
            atomic.sweep(parent)
    if error is not None:
        raise error
    return value


def is_apart(file: Path) -> bool:
    """Whether work on a model gets a fresh process: it is large, and this process may have children of its own."""
    return _size(file) >= LARGE and not multiprocessing.current_process().daemon


def release_memory(file: Path) -> None:
    """Gives the system what is no longer used, before a long loop that needs little: glibc keeps it otherwise. Not for
    a small model: looking through all that libraries hold takes 0.1 s."""
    if _size(file) < LARGE:
        return
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Gives the system the pages of what was freed, which glibc keeps in the holes of its heap; takes milliseconds."""
    if (trim := _of_glibc("malloc_trim")) is not None:
        trim(0)


def return_arrays_at_once() -> None:
    """From now on this process gives large arrays back when they are freed. As glibc starts, but a large array that was
    freed raises its threshold, and smaller ones then fragment the heap. For processes that are qbench's own."""
    if (change := _of_glibc("mallopt")) is not None:
        change(_MMAP_THRESHOLD, 128 * 2**10)


def _of_glibc(name: str) -> Callable[..., int] | None:
    """A function of the C library; None on other systems, and where it has none (musl)."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _caught(function: Callable[..., Any], args: tuple[Any, ...], *, progress: Any) -> tuple[Any, QbenchError | None]:
    """The value, or the error as it is: on its way out of a child an error of usage would become one of a case."""
    try:
        return function(*args), None
    except QbenchError as error:
        return None, type(error)(str(error))


def _size(file: Path) -> int:
    """Of a model and of what lies beside it under its name: weights."""
    try:
        beside = [path for path in file.parent.iterdir() if path.name.startswith(file.stem)] if file.is_file() else []
        return sum(path.stat().st_size for path in beside if path.is_file())
    except OSError:  # reading the file says what is wrong
        return 0
