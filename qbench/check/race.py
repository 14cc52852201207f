"""Two files of one runtime in turns, in several processes: how many times as long the first takes.

Calls of one process agree with each other more than processes do: the limits are those of the processes' medians.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.backends.base import Backend, Inputs, Runner
from qbench.check.finding import Race
from qbench.stats import intervals

Array = NDArray[Any]
SECONDS = 1.5  # of each process
PROCESSES, FEWEST_PROCESSES = 5, 3
RACE_SECONDS = 15.0  # after so long no further process begins, where the fewest have run: large files load for seconds
_BLOCK_SECONDS, _WARMUP_SECONDS, _LEAST_PAIRS = 0.02, 0.3, 3


@dataclass(frozen=True, kw_only=True)
class Lap:
    """Of one process: the median ratio of blocks in turns, SQNR of the worst of the first file's ``outputs``, and
    whether one has values that are no finite numbers where the other file's are (``broken``)."""

    ratio: float
    sqnr_db: float | None
    broken: bool
    outputs: int = 1


def race_here(
    backend: str,
    file: Path,
    opponent: Path,
    inputs: Inputs,
    threads: int,
    seconds: float,
    *,
    progress: object,
) -> Lap:
    """What one process, this one, which is a child, saw."""
    plugin: Backend = registry.load("backend", backend)
    runners = [plugin.load(path, threads=threads) for path in (file, opponent)]
    prepared = [runner.prepare(inputs) for runner in runners]
    with runners[0].context():
        answers = [
            [output.astype(np.float64) for output in runner.all_outputs(runner(each))]
            for runner, each in zip(runners, prepared, strict=True)
        ]
        counts = [_count_calls(runner, each) for runner, each in zip(runners, prepared, strict=True)]
        ratios: list[float] = []
        begun = time.perf_counter()
        while len(ratios) < _LEAST_PAIRS or time.perf_counter() - begun < seconds:
            order = (0, 1) if len(ratios) % 2 == 0 else (1, 0)  # whichever comes second has the warmer core
            blocks = {place: _time_block(runners[place], prepared[place], counts[place]) for place in order}
            ratios.append(blocks[0] / blocks[1])
            if time.perf_counter() - begun > 5 * seconds:
                break
    pairs = list(zip(*answers, strict=False))
    broken = any(np.isfinite(theirs).all() and not np.isfinite(own).all() for own, theirs in pairs)
    levels = [level for own, theirs in pairs if (level := _sqnr(own, theirs)) is not None]
    worst = min(levels, default=None)
    return Lap(ratio=statistics.median(ratios), sqnr_db=worst, broken=broken, outputs=len(pairs))


def goes_on(processes: int, elapsed_seconds: float) -> bool:
    """Whether another process races, after so many in that time."""
    if processes >= PROCESSES:
        return False
    return processes < min(FEWEST_PROCESSES, PROCESSES) or elapsed_seconds < RACE_SECONDS


def combine(laps: Sequence[Lap], runtime: str, opponent: str) -> Race:
    """The race that several processes ran; ``opponent``: what it is, for a person."""
    limits = intervals.exp(intervals.t_interval(np.log([lap.ratio for lap in laps]), 0.95))
    low, high = (float("nan") if end is None else end for end in (limits.low, limits.high))
    return Race(
        runtime=runtime,
        opponent=opponent,
        ratio=limits.value,
        low=low,
        high=high,
        processes=len(laps),
        sqnr_db=laps[0].sqnr_db,
    )


def _count_calls(runner: Runner, prepared: Any) -> int:
    """How many calls fill a block, after a warm-up."""
    begun, calls = time.perf_counter(), 0
    while time.perf_counter() - begun < _WARMUP_SECONDS or calls < 2:
        runner(prepared)
        calls += 1
    return max(1, round(_BLOCK_SECONDS / ((time.perf_counter() - begun) / calls)))


def _time_block(runner: Runner, prepared: Any, calls: int) -> float:
    """Seconds of one call, over a block of them."""
    before = time.perf_counter()
    for _ in range(calls):
        runner(prepared)
    return (time.perf_counter() - before) / calls


def _sqnr(int8: Array, fp32: Array) -> float | None:
    """dB of the fp32 answer over the difference; None where they are equal, or no finite numbers."""
    noise = float(np.linalg.norm(int8 - fp32)) if int8.shape == fp32.shape else float("nan")
    signal = float(np.linalg.norm(fp32))
    return 20 * float(np.log10(signal / noise)) if np.isfinite(noise) and noise > 0 and signal > 0 else None
