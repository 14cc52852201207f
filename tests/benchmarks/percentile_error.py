"""How often the limits of p50, p90 and p99 cover the truth where calls depend on each other, by simulation.

    python tests/benchmarks/percentile_error.py [SERIES]

Two host states, the slow one 45 % slower, each call off by 3 %: ``dwell`` is how many calls a slow state lasts,
``slow`` the share of calls in it; processes differ by as much as is known of them. Prints a row a setting: the
coverage, and how often the percentile was given at all. ``independent``: limits that take the calls for independent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qbench.machine.process_spread import TIME_SPREAD
from qbench.measure.percentiles import percentile
from qbench.stats import intervals

Floats = NDArray[np.float64]
QUANTILES = (0.5, 0.9, 0.99)
SLOWER, JITTER = 1.45, 0.03


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    processes: int
    calls: int
    dwell: int
    slow: float
    apart: float = TIME_SPREAD


SETTINGS = [
    Setting(processes, calls, dwell, slow)
    for processes, calls in ((1, 4000), (2, 1500), (3, 1200), (9, 600))
    for slow in (0.4, 0.15)
    for dwell in (1, 30, 100)
]


def series(setting: Setting, random: np.random.Generator) -> Floats:
    """The calls of one process, in units of a calm call."""
    leave_slow = 1 / setting.dwell
    leave_calm = leave_slow * setting.slow / (1 - setting.slow)
    states = np.empty(setting.calls, dtype=bool)
    state, start = bool(random.random() < setting.slow), 0
    while start < setting.calls:
        lasts = int(random.geometric(min(1.0, leave_slow if state else leave_calm)))
        states[start : start + lasts] = state
        start, state = start + lasts, not state
    level = np.exp(setting.apart * random.standard_normal())
    times: Floats = np.where(states, SLOWER, 1.0) * level * np.exp(JITTER * random.standard_normal(setting.calls))
    return times


def truth(setting: Setting, q: float, random: np.random.Generator) -> float:
    """The percentile of all calls of all processes."""
    count = 2_000_000
    level = np.exp(setting.apart * random.standard_normal(count))
    slow = random.random(count) < stationary(setting)
    return float(np.quantile(np.where(slow, SLOWER, 1.0) * level * np.exp(JITTER * random.standard_normal(count)), q))


def stationary(setting: Setting) -> float:
    """The share of calls in the slow state, as ``series`` makes them."""
    leave_slow = min(1.0, 1 / setting.dwell)
    leave_calm = leave_slow * setting.slow / (1 - setting.slow)
    return (1 / leave_slow) / (1 / leave_slow + 1 / min(1.0, leave_calm))


def coverage(setting: Setting, count: int, seed: int = 0) -> dict[float, tuple[int, int, int]]:
    """By quantile: of ``count`` series, how many were given limits, how many of these cover the truth, and how many of
    all would with limits that take calls for independent."""
    random = np.random.default_rng(seed)
    true = {q: truth(setting, q, random) for q in QUANTILES}
    counts = {q: [0, 0, 0] for q in QUANTILES}
    for _ in range(count):
        groups = [series(setting, random) for _ in range(setting.processes)]
        calls = np.concatenate(groups)
        for q in QUANTILES:
            here = percentile(calls, groups, q)
            naive = intervals.quantile_interval(calls, q)
            if here is not None and here.low is not None and here.high is not None:
                counts[q][0] += 1
                counts[q][1] += here.low <= true[q] <= here.high
            if naive is not None and naive.low is not None and naive.high is not None:
                counts[q][2] += naive.low <= true[q] <= naive.high
    return {q: (given, covered, independent) for q, (given, covered, independent) in counts.items()}


def rows(count: int) -> Iterator[str]:
    """The table."""
    yield "processes  calls  slow  dwell     p50 given independent     p90 given independent     p99 given independent"
    for setting in SETTINGS:
        cells = []
        for given, covered, naive in coverage(setting, count).values():
            share = f"{100 * covered / given:7.0f}" if given else "      -"
            cells.append(f"{share} {100 * given / count:5.0f} {100 * naive / count:11.0f}")
        head = f"{setting.processes:9} {setting.calls:6} {setting.slow:5.2f} {setting.dwell:6}"
        yield " ".join([head, *cells])


if __name__ == "__main__":
    for row in rows(int(sys.argv[1]) if len(sys.argv) > 1 else 400):
        print(row, flush=True)
