"""A canary: a fixed piece of arithmetic of 25 us that needs nothing but the core, read beside what is measured.

A neighbour on the host that shares the core (its sibling hardware thread) takes half of its throughput for seconds, and
no counter of a guest shows it. The canary does: it touches 8 KiB, which the first-level cache holds, so it is as fast
as the core is and hardly disturbs what comes after it.

The arithmetic is numpy's exponential of 1,024 floats: a polynomial in registers, in vectors as wide as the core has.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Clock = Callable[[], int]

_FLOATS = 1024  # 4 KiB read and 4 KiB written, an eighth to a quarter of a first-level cache
_ALIGNMENT = 4096  # bytes: the place of the buffers must not decide how fast they are
_PARTS = 3  # the least of them is the reading: an interrupt, or cold instructions after a sleep, hits one or two
_CALLS = 8  # of each part: 6 us


class Canary:
    """Reads how long the fixed arithmetic takes now."""

    def __init__(self, clock: Clock = time.perf_counter_ns) -> None:
        self._clock = clock
        self._values, self._results = _aligned(), _aligned()
        self._values[:] = np.linspace(-1, 1, _FLOATS, dtype=np.float32)

    def read(self) -> int:
        """Nanoseconds of the fastest of three equal parts."""
        clock, values, results, exponential = self._clock, self._values, self._results, np.exp
        least: int | None = None
        for _ in range(_PARTS):
            before = clock()
            for _ in range(_CALLS):
                exponential(values, results)
            taken = clock() - before
            least = taken if least is None else min(least, taken)
        assert least is not None
        return least


def _aligned() -> NDArray[np.float32]:
    """That many floats at the start of a page."""
    raw = np.empty(4 * _FLOATS + _ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + 4 * _FLOATS].view(np.float32)
