"""Whether a series of log ratios moved while it was measured, by more than matters; pure.

Neighbouring blocks resemble each other, so that a test that takes them for independent finds a drift in series that
only wander: with a correlation of 0.8 between neighbours, in 30 % of those without a drift (7 % here). And a drift of
0.2 % is of no consequence, however sure it is. So a series counts as moving where the last third lies farther from the
first than ``room``, and farther than its standard error explains. Rates: ``tests/benchmarks/drift_error.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qbench.stats.intervals import effective_size

Floats = NDArray[np.float64]
LEVEL = 0.95
LEAST = 6  # blocks in a third, over all processes
ENOUGH = 3  # processes that tell by themselves how far their drifts differ


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How far the last third lies above the first, the mean over processes, its standard ``error`` and that one's
    degrees of ``freedom``."""

    value: float
    error: float
    freedom: float

    def exceeds(self, room: float) -> bool:
        """Whether it is larger than ``room``, and than chance explains."""
        from scipy.special import stdtrit

        return abs(self.value) > max(room, float(stdtrit(self.freedom, (1 + LEVEL) / 2)) * self.error)


def measure_drift(series: Sequence[Floats]) -> Drift | None:
    """That of the series of each process; None where thirds of them have fewer than ``LEAST`` values.

    From ``ENOUGH`` processes on the error is read off how their drifts differ; of fewer, off the spread within each, as
    of so many values as a third is worth (``effective_size``).
    """
    long_series = [values for values in series if len(values) >= 3]
    if sum(len(values) // 3 for values in long_series) < LEAST:
        return None
    moves = np.array([_compare_thirds(values) for values in long_series])
    count = len(moves)
    if count >= ENOUGH:
        return Drift(value=float(moves.mean()), error=float(moves.std(ddof=1)) / math.sqrt(count), freedom=count - 1)
    variances, worths = zip(*(_spread_of_move(values) for values in long_series), strict=True)
    return Drift(value=float(moves.mean()), error=math.sqrt(sum(variances)) / count, freedom=sum(worths) - count)


def is_stationary(series: Sequence[Floats], room: float) -> bool | None:
    """Whether the series stayed where they were, but for ``room``; None where there are too few values."""
    drift = measure_drift(series)
    return None if drift is None else not drift.exceeds(room)


def _compare_thirds(values: Floats) -> float:
    third = len(values) // 3
    return float(np.median(values[-third:]) - np.median(values[:third]))


def _spread_of_move(values: Floats) -> tuple[float, float]:
    """The variance of the move between two thirds, and how many independent values the series is worth. The variance of
    a median is pi / 2 of the mean's, as for a normal distribution; the values are taken about a straight line, so that
    a drift is no spread."""
    times = np.arange(len(values)) - (len(values) - 1) / 2
    still = values - values.mean() - times * float((times * values).sum() / (times**2).sum())
    worth = max(3.0, effective_size(still) or float(len(still)))
    return math.pi / 2 * float(still.var(ddof=2)) * 2 / (worth / 3), worth
