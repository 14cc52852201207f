"""How many threads this process computes with, and where they may run: set, and read back from those who know.

A session of ONNX Runtime or OpenVINO has a number of its own, which the session sets and tells.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qbench.errors import MeasureError

TASKS = Path("/proc/self/task")


def set_torch(threads: int) -> None:
    """torch computes with that many intra-op threads, and one inter-op thread; raises ``MeasureError`` where it keeps
    another number of the former."""
    import torch

    torch.set_num_threads(threads)
    if torch.get_num_threads() != threads:
        raise MeasureError(f"torch kept {torch.get_num_threads()} threads, not {threads}")
    # The number can be set once in a process, before the pool starts: then the read-back decides.
    with contextlib.suppress(RuntimeError):
        torch.set_num_interop_threads(1)


def read_torch() -> dict[str, Any]:
    """What torch says: ``threads`` and ``interop_threads``."""
    import torch

    return {"threads": torch.get_num_threads(), "interop_threads": torch.get_num_interop_threads()}


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """torch computes on one thread inside: sums on several differ in their last bits, with their number and from run to
    run."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def read_pools() -> dict[str, int]:
    """Thread pool of a library (``openmp:libgomp.so``) -> its threads."""
    return {f"{pool['internal_api']}:{Path(pool['filepath']).name}": pool["num_threads"] for pool in _list_pools()}


def read_openmp() -> list[int]:
    """The threads of each OpenMP runtime, but for the copies that a library brings for itself (scikit-learn, in the
    folder ``*.libs``)."""
    return [
        pool["num_threads"]
        for pool in _list_pools()
        if pool["user_api"] == "openmp" and not Path(pool["filepath"]).parent.name.endswith(".libs")
    ]


def _list_pools() -> list[dict[str, Any]]:
    import threadpoolctl

    pools: list[dict[str, Any]] = threadpoolctl.threadpool_info()
    return pools


def count_tasks() -> int | None:
    """The system's own count of the threads of this process; None where it does not tell."""
    return len(list(TASKS.iterdir())) if TASKS.is_dir() else None


def list_cores() -> dict[int, set[int]]:
    """Thread of this process -> the cores that it may run on; empty where the system does not tell."""
    if not TASKS.is_dir() or not hasattr(os, "sched_getaffinity"):
        return {}
    cores = {}
    for task in TASKS.iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            cores[int(task.name)] = os.sched_getaffinity(int(task.name))
    return cores


def confine(now: dict[int, set[int]], before: frozenset[int]) -> None:
    """Lets the threads that came after those ``before`` run on the cores of the process only: they take after whichever
    thread makes them, which may be one that was there before the process was pinned."""
    for task in _find_outside(now, before):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.sched_setaffinity(task, now[os.getpid()])


def require_inside(now: dict[int, set[int]], before: frozenset[int], library: str) -> None:
    """Raises ``MeasureError`` where a thread that came after those ``before`` may leave the cores of the process."""
    outside = set().union(*_find_outside(now, before).values())
    if outside:
        raise MeasureError(
            f"{library} lets threads run on the cores {', '.join(map(str, sorted(outside)))}, outside those of this "
            f"process ({', '.join(map(str, sorted(now[os.getpid()])))}): not measured, since it is another case"
        )


def _find_outside(now: dict[int, set[int]], before: frozenset[int]) -> dict[int, set[int]]:
    """Thread -> its cores outside those of the process, for those that came later; older ones are those of other
    libraries, and idle."""
    allowed = now.get(os.getpid(), set())
    return {task: cores - allowed for task, cores in now.items() if task not in before and not cores <= allowed}
