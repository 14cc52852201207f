"""How much this machine varies: a loop timed against itself, as the paired protocol times two variants."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], float]
Work = Callable[[int], object]

_BLOCK_CALLS = 8
_CALL_SECONDS = 0.0007  # as long as one call of a small int8 model, so that a block lasts 5 to 6 ms
_PAIRS_AT_LEAST = 6  # below it no two-sided 95 % order-statistic interval of a median exists


@dataclass(frozen=True, kw_only=True)
class Noise:
    """A loop against itself in ``pairs`` of short blocks, contender and baseline drawn at random: the truth is 1.

    ``ratio`` is the median over the pairs, ``pair_spread`` half the width of the middle 95 % of pairs, and
    ``call_spread`` how far the slowest 5 % of single calls lie above the median call; all as shares of 1.
    """

    ratio: float
    pair_spread: float
    call_spread: float
    pairs: int
    seconds: float


def noise(seconds: float, *, clock: Clock = time.perf_counter, work: Work | None = None, seed: int = 0) -> Noise:
    """What a comparison on this machine would suffer, watched for about ``seconds``.

    Needs no library, so that it runs anywhere. A block's estimate is its minimum, a pair's the log of the ratio of
    its two blocks. ``work(size)`` is the loop, its time proportional to ``size``.
    """
    work = _spin if work is None else work
    size = _size(clock, work)
    start = clock()
    calls: list[float] = []
    logs: list[float] = []
    rng = random.Random(seed)
    while clock() - start < seconds or len(logs) < _PAIRS_AT_LEAST:
        first, second = _block(clock, work, size), _block(clock, work, size)
        calls += first + second
        contender_is_second = rng.choice((1, -1))
        logs.append(contender_is_second * math.log(min(second) / min(first)))
    cuts = statistics.quantiles(logs, n=40, method="inclusive")
    return Noise(
        ratio=math.exp(statistics.median(logs)),
        pair_spread=math.expm1((cuts[-1] - cuts[0]) / 2),
        call_spread=statistics.quantiles(calls, n=20)[-1] / statistics.median(calls) - 1,
        pairs=len(logs),
        seconds=clock() - start,
    )


def _spin(size: int) -> int:
    return sum(range(size))


def _size(clock: Clock, work: Work) -> int:
    """How much work takes about ``_CALL_SECONDS``."""
    size = 256
    while True:
        start = clock()
        work(size)
        taken = clock() - start
        if taken >= _CALL_SECONDS / 2:
            return max(1, round(size * _CALL_SECONDS / taken))
        size *= 2


def _block(clock: Clock, work: Work, size: int) -> list[float]:
    times = []
    for _ in range(_BLOCK_CALLS):
        start = clock()
        work(size)
        times.append(clock() - start)
    return times
