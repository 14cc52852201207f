"""How much this machine varies: a loop timed against itself, as the paired protocol times two variants.

The true ratio is 1, so whatever else is read is this machine's noise, steal and neighbours included, which no counter
of a guest shows. A canary beside it tells how much of the time something else used the core. The loop runs in a child
process that is pinned like a measured case.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.machine import canary, fingerprint
from qbench.process import child, child_process
from qbench.stats import intervals
from qbench.stats.interval_type import Interval

Clock = Callable[[], float]
Work = Callable[[int, int], object]

TOLERANCE = 0.05  # the gate's default

_BLOCK_CALLS = 8
_COLD_CALLS = 2  # discarded after each switch: the other arm's data lies in the cache
_CALL_SECONDS = 0.0007  # as long as one call of a small int8 model, so that a block lasts 5 to 7 ms
_PAIRS_AT_LEAST = 6  # below it no two-sided 95 % order-statistic interval of a median exists
# The weights of a small int8 model; both arms fit one core's own cache. With 1 MiB each, which pages they got decided
# the ratio: 0.98 to 1.05 from one process to the next on 2 MiB of cache, with 256 KiB 0.999 to 1.000.
_ARM_BYTES = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Raw: the logarithm of the ratio of each pair of blocks, the seconds of each kept call, and of the whole, and the
    canary's nanoseconds before each pair."""

    log_ratios: tuple[float, ...]
    calls: tuple[float, ...]
    seconds: float
    canary_ns: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A loop against itself in ``pairs`` of short blocks, in random order: the truth is 1.

    ``ratio`` is the median over the pairs with its 95 % interval, ``pair_spread`` half the width of the middle 95 % of
    pairs, ``call_spread`` how far the slowest 5 % of single calls lie above the median call; all as shares of 1.
    ``decidable``: whether a gate of that ``tolerance`` can be decided here, in ``seconds`` of measuring; what differs
    from one process to the next (about 1.5 %) comes on top.
    ``core`` is what the loop was pinned to, None where the system pins no process. ``shared`` is the share of readings
    of the canary at which something else used the core, ``calm_seconds`` its time on the core alone and
    ``shared_seconds`` the median of the others (None: none was).
    """

    ratio: Interval
    pair_spread: float
    call_spread: float
    pairs: int
    seconds: float
    core: int | None
    tolerance: float
    decidable: bool
    shared: float | None = None
    calm_seconds: float | None = None
    shared_seconds: float | None = None


def noise(
    seconds: float,
    *,
    limits: child_process.Limits,
    core: int | None,
    tolerance: float = TOLERANCE,
    calm_seconds: float | None = None,
) -> Noise:
    """What a comparison on ``core`` would suffer, watched for about ``seconds`` in a child of its own. ``calm_seconds``
    is what the canary is known to take on this core alone."""
    cores = None if core is None else (core,)
    watched, pinned = child_process.call(in_this_process, seconds, limits=limits, cores=cores)
    return judged(watched, core=pinned, tolerance=tolerance, calm_seconds=calm_seconds)


def in_this_process(seconds: float, *, progress: Any = None) -> tuple[Watched, int | None]:
    """What is seen from this process, and the one core it is pinned to."""
    child.freeze_garbage_collector()
    return watched(seconds), fingerprint.pinned_core()


def watched(
    seconds: float,
    *,
    clock: Clock = time.perf_counter,
    work: Work | None = None,
    read: Callable[[], int] | None = None,
    seed: int = 0,
) -> Watched:
    """Pairs of blocks of two equal arms, for about ``seconds``, at least 6 pairs.

    A block's estimate is the minimum of its kept calls, a pair's the logarithm of the ratio of its two blocks, in
    random order. ``work(arm, size)`` is the loop of arm 0 or 1, its time proportional to ``size``; ``read`` gives a
    reading of the canary.
    """
    work = Reading() if work is None else work
    read = canary.Canary().read if read is None else read
    readings: list[int] = []
    size = _size(clock, work)
    start = clock()
    calls: list[float] = []
    logs: list[float] = []
    rng = random.Random(seed)
    while clock() - start < seconds or len(logs) < _PAIRS_AT_LEAST:
        readings.append(read())
        first = rng.choice((0, 1))
        blocks = {arm: _block(clock, work, arm, size) for arm in (first, 1 - first)}
        calls += blocks[0] + blocks[1]
        logs.append(math.log(min(blocks[1]) / min(blocks[0])))
    return Watched(log_ratios=tuple(logs), calls=tuple(calls), seconds=clock() - start, canary_ns=tuple(readings))


def judged(
    pairs: Watched, *, core: int | None, tolerance: float = TOLERANCE, calm_seconds: float | None = None
) -> Noise:
    """The figures of what was watched, and the verdict: the rule that a gate holds its own control to."""
    readings = np.asarray(pairs.canary_ns, dtype=np.int64)
    calm_ns = canary.calm_level(readings, None if calm_seconds is None else calm_seconds * 1e9)
    shared = readings[readings >= canary.DISTURBED * calm_ns] if calm_ns is not None else readings
    logs = np.asarray(pairs.log_ratios)
    ratio = intervals.exp(intervals.quantile_interval(logs, 0.5) or Interval(value=float(np.median(logs))))
    cuts = statistics.quantiles(pairs.log_ratios, n=40, method="inclusive")
    return Noise(
        ratio=ratio,
        pair_spread=math.expm1((cuts[-1] - cuts[0]) / 2),
        call_spread=statistics.quantiles(pairs.calls, n=20)[-1] / statistics.median(pairs.calls) - 1,
        pairs=len(pairs.log_ratios),
        seconds=pairs.seconds,
        core=core,
        tolerance=tolerance,
        decidable=decidable(ratio, tolerance),
        shared=None if calm_ns is None else canary.share_disturbed(readings, calm_ns),
        calm_seconds=None if calm_ns is None else calm_ns / 1e9,
        shared_seconds=float(np.median(shared)) / 1e9 if shared.size else None,
    )


def decidable(control: Interval, tolerance: float) -> bool:
    """Whether a control's interval lies within half the tolerance, on the log scale; no limits decide nothing."""
    if control.low is None or control.high is None:
        return False
    return max(abs(math.log(control.low)), abs(math.log(control.high))) <= math.log1p(tolerance / 2)


class Reading:
    """The loop: each arm reads its own buffer, so that a neighbour who fills the cache or the memory shows.

    Needs no library. ``memchr``, which runs under ``find``, reads as fast as a core can, like a matrix product.
    """

    def __init__(self) -> None:
        self._buffers = tuple(bytes(bytearray(_ARM_BYTES)) for _ in range(2))

    def __call__(self, arm: int, size: int) -> int:
        """Reads the arm's buffer ``size`` times."""
        find = self._buffers[arm].find
        last = 0
        for _ in range(size):
            last = find(1)
        return last


def _size(clock: Clock, work: Work) -> int:
    """How much work takes about ``_CALL_SECONDS``, by the best of three: an interrupted call must not shrink it."""
    size = 1
    while True:
        taken = min(_timed(clock, work, 0, size) for _ in range(3))
        if taken >= _CALL_SECONDS / 2:
            return max(1, round(size * _CALL_SECONDS / taken))
        size *= 2


def _block(clock: Clock, work: Work, arm: int, size: int) -> list[float]:
    for _ in range(_COLD_CALLS):
        work(arm, size)
    return [_timed(clock, work, arm, size) for _ in range(_BLOCK_CALLS)]


def _timed(clock: Clock, work: Work, arm: int, size: int) -> float:
    start = clock()
    work(arm, size)
    return clock() - start
