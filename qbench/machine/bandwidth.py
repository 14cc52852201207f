"""How fast one core reads memory: of a buffer of a given size, since a small one lies in a cache."""

from __future__ import annotations

import time
from typing import Any

from qbench.process import child_process

_LEAST_BYTES, _MOST_BYTES = 1 << 16, 1 << 29
_SECONDS, _LEAST_TURNS = 0.1, 5


def measure_reading(size_bytes: int, *, limits: child_process.Limits, cores: tuple[int, ...] | None = None) -> float:
    """The least seconds in which one core reads that many bytes once, over and over; raises ``CaseError`` where no
    process can be started."""
    seconds: float = child_process.call(read_here, size_bytes, limits=limits, cores=cores)
    return seconds


def read_here(size_bytes: int, *, progress: Any = None) -> float:
    """The same in this process, by a product of a vector with itself. Of more than 512 MB, as many times as that."""
    import numpy as np
    import threadpoolctl

    size = min(max(size_bytes, _LEAST_BYTES), _MOST_BYTES)
    values = np.ones(size // 4, dtype=np.float32)
    best, turns, begun = float("inf"), 0, time.perf_counter()
    with threadpoolctl.threadpool_limits(1):
        while turns < _LEAST_TURNS or time.perf_counter() - begun < _SECONDS:
            before = time.perf_counter()
            np.dot(values, values)
            best, turns = min(best, time.perf_counter() - before), turns + 1
    return best * size_bytes / size
