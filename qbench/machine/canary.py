"""A canary: a fixed piece of arithmetic of 25 us that needs nothing but the core, read beside what is measured.

A neighbour on the host that shares the core (its sibling hardware thread) takes half of its throughput for seconds, and
no counter of a guest shows it. The canary does: it touches 8 KiB, which the first-level cache holds, so it is as fast
as the core is and hardly disturbs what comes after it.

The arithmetic is numpy's exponential of 1,024 floats: a polynomial in registers, in vectors as wide as the core has.
Other work tells less of a neighbour (times alone and beside one, 2-vCPU KVM guest): exponential x 1.56, a loop in
Python x 1.60, products of numbers x 1.65, a product of 64 x 64 matrices x 1.12, a hash x 1.10.

A reading is disturbed from ``DISTURBED`` times the calm level on. That lies in the valley between two states: of 8,142
readings there (``python tests/benchmarks/canary.py states RUN``), as multiples of the calm level,

    up to 1.04      43.4 %      1.08 to 1.20   0.3 %      1.40 to 1.60   21.5 %
    1.04 to 1.08    20.1 %      1.20 to 1.30   0.2 %      1.60 to 1.80   11.7 %
                                1.30 to 1.40   1.6 %      above 1.80      1.3 %

Loops on the guest's other core, or on the same one, change nothing in that (``canary.py neighbours``).

A clock that is lowered by a fifth or more reads like a neighbour: either way the core did less than it can. Where every
reading is disturbed, only an earlier one of the same machine can show it (``known_ns``); without one they are one state
and count as calm.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Clock = Callable[[], int]

DISTURBED = 1.25  # the geometric middle of the two states' edges, 1.1 and 1.4
_RANK = 2  # the third smallest reading is the level, since a clock that was raised for a moment gives one or two

_FLOATS = 1024  # 4 KiB read and 4 KiB written, an eighth to a quarter of a first-level cache
_ALIGNMENT = 4096  # bytes: the place of the buffers must not decide how fast they are
_PARTS = 3  # the least of them is the reading: an interrupt, or cold instructions after a sleep, hits one or two
_CALLS = 8  # of each part: 6 us
_PATIENCE_NS = 3_000_000_000  # a neighbour's spells last seconds


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


def calm_level(readings: NDArray[np.int64], known_ns: float | None = None) -> float | None:
    """Nanoseconds that the canary takes on a core that nobody shares: the third smallest of the readings (of fewer than
    9 a smaller one), or ``known_ns`` where that is less. None where nothing was read and nothing is known."""
    if not readings.size:
        return known_ns
    rank = min(_RANK, (readings.size - 1) // 4)
    level = float(np.partition(readings, rank, axis=None)[rank])
    return level if known_ns is None else min(level, known_ns)


def share_disturbed(readings: NDArray[np.int64], calm_ns: float) -> float | None:
    """The share of readings at which something else used the core; None where nothing was read."""
    return float((readings >= DISTURBED * calm_ns).mean()) if readings.size else None


def wait_for_calm(read: Callable[[], int], calm_ns: float, clock: Clock = time.perf_counter_ns) -> bool:
    """Whether the canary, read over and over for a few seconds, took no more than on a core that nobody shares."""
    began = clock()
    while read() >= DISTURBED * calm_ns:
        if clock() - began >= _PATIENCE_NS:
            return False
    return True


def _aligned() -> NDArray[np.float32]:
    """That many floats at the start of a page."""
    raw = np.empty(4 * _FLOATS + _ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + 4 * _FLOATS].view(np.float32)
