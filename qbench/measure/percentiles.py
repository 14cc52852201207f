"""Percentiles of calls that are not independent, with limits that hold all the same; pure.

The host is in one state or another for many calls on end (measurement: half a core taken away for about 100 calls), and
one process differs from the next by some per cent. Limits that take calls for independent then cover 18, 40 and 75 %
of the true p50, p90 and p99 where 95 % are meant. Here the limits are the widest of three:

    calls       order statistics of as many independent calls as these are worth (``stats.effective_size``, of the
                ranks and of "longer than the percentile", whichever is less)
    shares      how the share of longer calls differs between groups, by Student's t
    values      how the groups' own percentiles differ, by Student's t, and never less than ``TIME_SPREAD``

A group is a process; the calls of a single process are cut into ``PARTS`` runs of neighbouring blocks, and the limits
speak of that process alone. The value is the percentile of all calls, and the limits lie around it.

Coverage in per cent, simulated (``tests/benchmarks/percentile_error.py``, 200 series a row; two host states 45 % apart,
processes 2 % apart, 4,000, 1,200 or 600 calls a process), and how often the percentile was given:

    processes  calls  slow  dwell     p50 given independent     p90 given independent     p99 given independent
            1   4000  0.40      1     100   100         100     100   100          99      98   100          98
            1   4000  0.40     30      99   100          28     100   100          53       -     0          92
            1   4000  0.40    100      97   100          22     100    84          37       -     0          86
            1   4000  0.15      1      98   100          94      98   100          96      94   100          94
            1   4000  0.15     30      98   100          52      98   100          32      94     9          74
            1   4000  0.15    100      94   100          30      94    71          15     100     0          44
            3   1200  0.40      1      98   100          30      98    90          21       -     0          28
            3   1200  0.40     30      99   100          20      98    84          19       -     0          26
            3   1200  0.40    100      98   100          18     100    55          19       -     0          33
            3   1200  0.15      1     100   100          16      98    50          43       -     0          32
            3   1200  0.15     30      97   100          10      98    62          25       -     0          28
            3   1200  0.15    100      98   100          10      96    35          14       -     0          22
            9    600  0.40      1      96   100          32      96   100          25      94    66          37
            9    600  0.40     30     100   100          18      97    98          18       -     0          34
            9    600  0.40    100      98   100          18      99    80          21       -     0          36
            9    600  0.15      1      98   100          16     100    94          51       -     0          45
            9    600  0.15     30      97   100          15     100    80          26       -     0          37
            9    600  0.15    100      96   100          14      98    55          12       -     0          22
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qbench.machine.process_spread import FREEDOM, TIME_SPREAD
from qbench.stats import intervals
from qbench.stats.interval_type import Interval

LEVEL = 0.95
# Independent calls that a two-sided interval at 95 % takes.
LEAST = {0.5: 6, 0.9: 36, 0.99: 368}
# Of so few processes nobody knows how their longest calls differ.
LEAST_PROCESSES = {0.5: 1, 0.9: 1, 0.99: 6}
PARTS = 6
# Where groups differ so much that any share could be longer, the limits of a median end here: among the longest calls
# are those that the system interrupted (8 ms beside 33 us), and no median lies there.
ENDS = (0.01, 0.99)


def percentile(calls: NDArray[np.float64], groups: Sequence[NDArray[np.float64]], q: float) -> Interval | None:
    """The share ``q`` of all calls is at most so long (the unit of ``calls``); None where they do not support it.

    ``groups``: the calls of each process. The median is given from 6 calls on; where those of a single process are
    worth fewer independent ones it has no limits, and of several processes those that the processes give.
    """
    if len(calls) < LEAST[q]:
        return None
    value = float(np.quantile(calls, q))
    worth = worth_of(calls, value)
    several, enough = len(groups) > 1, worth >= LEAST[q]
    if q != 0.5 and not (enough and (not several or len(groups) >= LEAST_PROCESSES[q])):
        return None
    if not enough and not several:
        return Interval(value=value)
    pieces = groups if several else np.array_split(calls, min(PARTS, len(calls)))
    low, high = _order(worth, q) if enough else (q, q)
    reach = _reach([float((part <= value).mean()) for part in pieces])
    if reach is not None:
        first, last = ENDS if q == 0.5 else (0.0, 1.0)
        low, high = max(first, min(low, q - reach)), min(last, max(high, q + reach))
    least, greatest = (float(limit) for limit in np.quantile(calls, (low, high)))
    apart = _apart([float(np.quantile(part, q)) for part in pieces]) if several else 0.0
    return Interval(value=value, low=min(least, value * math.exp(-apart)), high=max(greatest, value * math.exp(apart)))


def undisturbed_median(
    calls: NDArray[np.float64], groups: Sequence[NDArray[np.float64]], processes: int
) -> Interval | None:
    """The median of calls in undisturbed blocks, ``groups`` by process, of ``processes`` that ran; None below 6 calls.

    These calls know one state of the host, so processes differ as their medians do: by Student's t, and never less than
    ``TIME_SPREAD``. Where a single one of several processes had any, its own limits are widened by that spread.
    Simulated, these limits cover 92 to 99 % with half widths of 1 to 10 %, where those of all calls cover the time on
    an undisturbed core in 0 to 100 % with 2 to 50 % (``python tests/benchmarks/undisturbed_error.py``).
    """
    if len(calls) < LEAST[0.5]:
        return None
    value = float(np.median(calls))
    if len(groups) > 1:
        apart = math.exp(_apart([float(np.median(group)) for group in groups], [len(group) for group in groups]))
        return Interval(value=value, low=value / apart, high=value * apart)
    alone = percentile(calls, groups, 0.5)
    if processes < 2 or alone is None or alone.low is None or alone.high is None:
        return alone
    apart = math.exp(_apart([value]))
    return Interval(value=value, low=alone.low / apart, high=alone.high * apart)


def worth_of(calls: NDArray[np.float64], value: float) -> float:
    """How many independent calls these are worth where it is asked which are longer than ``value``."""
    sizes = (intervals.effective_size(ranks(calls)), intervals.effective_size(calls > value))
    known = [size for size in sizes if size is not None]
    return min(known) if known else float(len(calls))


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks, equal values sharing theirs: they carry the dependence between neighbours without the rare long calls,
    which would drown it."""
    _, rank, counts = np.unique(values, return_inverse=True, return_counts=True)
    shared: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[rank]
    return shared


def _order(worth: float, q: float) -> tuple[float, float]:
    """The shares of calls between which the true percentile lies, for so many independent calls: the exact binomial
    limits with their counts as real numbers (Clopper and Pearson; Woodruff, JASA 47 (1952), 635-646)."""
    from scipy.special import betaincinv

    below, tail = worth * q, (1 - LEVEL) / 2
    return (
        float(betaincinv(below, worth - below + 1, tail)),
        float(betaincinv(below + 1, worth - below, 1 - tail)),
    )


def _reach(values: Sequence[float]) -> float | None:
    """Half the width of Student's t interval on the mean; None where there is no spread to read it from."""
    interval = intervals.t_interval(np.asarray(values), LEVEL)
    return None if interval.high is None else interval.high - interval.value


def _apart(values: Sequence[float], counts: Sequence[int] = ()) -> float:
    """Half the width of the interval on the mean of the logarithms, in logarithms. ``counts``: how many calls each
    value stands for, where the mean is that of all calls."""
    from scipy.special import stdtrit

    logs = np.log(np.maximum(values, 1e-12))
    freedom, spread = len(logs) - 1, float(logs.std(ddof=1)) if len(logs) > 1 else 0.0
    together = (freedom * spread**2 + FREEDOM * TIME_SPREAD**2) / (freedom + FREEDOM)
    tail = (1 + LEVEL) / 2
    alone = float(stdtrit(freedom, tail)) * spread if freedom else 0.0
    pooled = float(stdtrit(freedom + FREEDOM, tail)) * math.sqrt(together)
    weights = np.asarray(counts or [1] * len(logs), dtype=float)
    return max(alone, pooled) * float(np.linalg.norm(weights) / weights.sum())
