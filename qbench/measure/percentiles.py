"""Percentiles of calls that are not independent, with limits that hold all the same; pure.

The host is in one state or another for many calls on end (measurement: half a core taken away for about 100 calls), and
one process differs from the next by some per cent. Limits that take calls for independent then cover 15, 20 and 25 %
of the true p50, p90 and p99 where 95 % are meant. Here the limits hold two errors, taken for independent. That of the
calls, as shares of them, is the wider of

    calls       order statistics of as many independent calls as these are worth (``stats.effective_size``, of the
                ranks and of "longer than the percentile", whichever is less)
    shares      how the share of longer calls differs between groups, by Student's t

and that of the processes is how their own percentiles differ, by Student's t, completed by what the other cases of the
setting show and what is known of processes (``time_spread``).

Groups are processes, of a median at least ``PARTS`` runs of neighbouring blocks, each of one process, as of any
percentile of a single process. The value is the percentile of all calls, and the limits lie around it.

Coverage in per cent, simulated (``tests/benchmarks/percentile_error.py``, 150 series a row; two host states 45 % apart,
processes 1.5 % apart), and how often the percentile was given:

    processes  calls  slow  dwell     p50 given independent     p90 given independent     p99 given independent
            1   4000  0.40      1      98   100          17      99   100          10      97   100          20
            1   4000  0.40     30      99   100          17      97   100          11       -     0          20
            1   4000  0.40    100      97   100          15      98    84          13       -     0          21
            1   4000  0.15      1      99   100           7      99   100          28      98   100          21
            1   4000  0.15     30      99   100           4      97   100          12     100    11          20
            1   4000  0.15    100      99   100           6      90    67          10     100     3          19
            2   1500  0.40      1      99   100          30     100    97          19       -     0          35
            2   1500  0.40     30      98   100          17     100    97          17       -     0          30
            2   1500  0.40    100      98   100          15     100    49          16       -     0          32
            2   1500  0.15      1      97   100          13     100    76          48       -     0          39
            2   1500  0.15     30      98   100          16      99    79          27       -     0          37
            2   1500  0.15    100      99   100          14      96    35          17       -     0          26
            3   1200  0.40      1      99   100          33      99    97          24       -     0          41
            3   1200  0.40     30      99   100          23     100    93          23       -     0          36
            3   1200  0.40    100      99   100          19     100    63          20       -     0          41
            3   1200  0.15      1     100   100          19      99    73          57       -     0          43
            3   1200  0.15     30      97   100          15      98    77          25       -     0          34
            3   1200  0.15    100      97   100          11      96    48          15       -     0          28
            9    600  0.40      1      99   100          39      99   100          26      99    95          45
            9    600  0.40     30     100   100          17     100    99          20       -     0          44
            9    600  0.40    100     100   100          21     100    86          23       -     0          39
            9    600  0.15      1      99   100          20     100    99          62      89     6          50
            9    600  0.15     30      99   100          16     100    95          28       -     0          40
            9    600  0.15    100      98   100          17      98    73           9       -     0          23
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from qbench.measure.time_spread import KNOWN, TimeSpread
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


def percentile(
    calls: NDArray[np.float64], groups: Sequence[NDArray[np.float64]], q: float, spread: TimeSpread = KNOWN
) -> Interval | None:
    """The share ``q`` of all calls is at most so long (the unit of ``calls``); None where they do not support it.

    ``groups``: the calls of each process; ``spread``: how much processes differ in this percentile. The median is given
    from 6 calls on; where those of a single process are worth fewer independent ones it has no limits, and of several
    processes those that the processes give.
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
    low, high = _order(worth, q) if enough else (q, q)
    pieces = groups if q != 0.5 and several else cut_groups(groups)
    reach = _reach([float((piece <= value).mean()) for piece in pieces])
    if reach is not None:
        first, last = ENDS if q == 0.5 else (0.0, 1.0)
        low, high = max(first, min(low, q - reach)), min(last, max(high, q + reach))
    least, greatest = (float(limit) for limit in np.quantile(calls, (low, high)))
    apart = spread.limit_mean(list_logs(groups, q), LEVEL)
    return _widen(value, least, greatest, apart)


def cut_groups(groups: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
    """At least ``PARTS`` runs of neighbouring blocks, each of one process."""
    each = math.ceil(PARTS / len(groups))
    return [piece for group in groups for piece in np.array_split(group, min(each, len(group)))]


def undisturbed_median(
    calls: NDArray[np.float64], groups: Sequence[NDArray[np.float64]], spread: TimeSpread = KNOWN
) -> Interval | None:
    """The median of calls in undisturbed blocks, ``groups`` by process; None below 6 calls.

    These calls know one state of the host, so processes differ as their medians do, by Student's t completed by
    ``spread``; of a single process those of its calls come on top. Simulated for a case without others beside it, these
    limits cover 93 to 100 % with half widths of 1 to 4 % where processes differ as is known of them or less, and 79 to
    91 % with 2 to 6 % where they differ twice as much; those of all calls cover the time on an undisturbed core in 15
    to 100 % with 2 to 50 % (``python tests/benchmarks/undisturbed_error.py``).
    """
    if len(calls) < LEAST[0.5]:
        return None
    if len(groups) == 1:
        return percentile(calls, groups, 0.5, spread)
    value = float(np.median(calls))
    apart = spread.limit_mean(list_logs(groups, 0.5), LEVEL, [len(group) for group in groups])
    return _widen(value, value, value, apart)


def list_logs(groups: Sequence[NDArray[np.float64]], q: float) -> list[float]:
    """The logarithm of the percentile of each process."""
    return [_log(float(np.quantile(group, q))) for group in groups]


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


def _widen(value: float, low: float, high: float, apart: float) -> Interval:
    """The limits from the calls and how much processes differ (half a width, in logarithms), as independent errors."""
    below, above = (math.hypot(_log(limit) - _log(value), apart) for limit in (low, high))
    return Interval(value=value, low=value * math.exp(-below), high=value * math.exp(above))


def _log(time: float) -> float:
    return math.log(max(time, 1e-12))
