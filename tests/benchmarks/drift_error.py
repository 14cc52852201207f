"""How often a series that does not drift is called unsteady, and one that does is seen, by simulation.

    python tests/benchmarks/drift_error.py [SERIES]

Log ratios of blocks with a spread of 1.5 %, each like its neighbour with the given correlation, over 1 to 9 processes,
and a drift from the first third to the last. ``now``: ``stats.stationarity``; ``before``: the thirds' order-statistic
intervals at 95 % do not overlap. In per cent of series.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.measure.estimates import DRIFT_ROOM
from qbench.stats import intervals, stationarity

Array = NDArray[Any]
SPREAD = 0.015


def wander(rng: np.random.Generator, blocks: int, correlation: float, drift: float) -> Array:
    """One process."""
    steps, level, values = rng.normal(0, 1, blocks), rng.normal(0, 1), []
    for step in steps:
        level = correlation * level + np.sqrt(1 - correlation**2) * step
        values.append(level)
    return SPREAD * np.array(values) + drift * 1.5 * np.linspace(-0.5, 0.5, blocks)


def differ_by_thirds(series: list[Array]) -> bool:
    """As it was judged before."""
    centred = [values - np.median(values) for values in series]
    thirds = (
        np.concatenate([values[: len(values) // 3] for values in centred]),
        np.concatenate([values[len(values) - len(values) // 3 :] for values in centred]),
    )
    first, last = (intervals.quantile_interval(part, 0.5) for part in thirds)
    if first is None or last is None:
        return False
    return not (first.low <= last.high and last.low <= first.high)


def rows(count: int) -> Iterator[str]:
    """The table."""
    yield f"processes  blocks  correlation  drift    now  before   (room {100 * DRIFT_ROOM:g} %)"
    rng = np.random.default_rng(0)
    for processes, blocks in ((1, 60), (3, 20), (6, 20)):
        for correlation in (0.0, 0.6, 0.8):
            for drift in (0.0, 0.01, 0.05, 0.08):
                now = before = 0
                for _ in range(count):
                    series = [wander(rng, blocks, correlation, drift) for _ in range(processes)]
                    now += stationarity.is_stationary(series, DRIFT_ROOM) is False
                    before += differ_by_thirds(series)
                shares = f"{100 * now / count:6.1f} {100 * before / count:7.1f}"
                yield f"{processes:9} {blocks:7} {correlation:12.1f} {100 * drift:5.0f} % {shares}"


if __name__ == "__main__":
    for row in rows(int(sys.argv[1]) if len(sys.argv) > 1 else 300):
        print(row, flush=True)
