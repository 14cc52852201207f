"""Two files of one runtime in turns, in several processes: how many times as long the first takes.

Calls of one process agree with each other more than processes do: the limits are those of the processes' medians.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.backends.base import Backend, Inputs, Runner
from qbench.check.finding import CauseTrial, Race
from qbench.errors import QbenchError
from qbench.machine import denormals
from qbench.stats import intervals
from qbench.stats.interval_type import Interval

Array = NDArray[Any]
SECONDS = 1.0  # of each process and of its two files
PROCESSES, FEWEST_PROCESSES = 5, 3
RACE_SECONDS = 8.0  # after so long no further process begins, where the fewest have run: large files load for seconds
_BLOCK_SECONDS, _WARMUP_SECONDS, _LEAST_ROUNDS = 0.02, 0.2, 3
_WARMUP_SHARE = 0.2  # of a process's seconds at most: a race that is asked to be short is not warmed up for longer
_ARM_SECONDS = 0.3  # that a further arm adds, as a share of ``SECONDS``


@dataclass(frozen=True, kw_only=True)
class Arm:
    """What takes part in a race: a file, called with these inputs on so many threads; ``flushed``: denormals are taken
    as zero."""

    file: Path
    inputs: Inputs
    threads: int
    flushed: bool = False

    @property
    def examples(self) -> int:
        """Of a call."""
        return len(self.inputs[0]) if self.inputs[0].ndim else 1


@dataclass(frozen=True, kw_only=True)
class Lap:
    """Of one process: the median ratio of blocks in turns, SQNR of the worst of the first file's ``outputs``, and
    whether one has values that are no finite numbers where the other file's are (``broken``). ``gains``: of each
    further arm, for one example, how many times as fast it is as the first; a text says why it has none."""

    ratio: float
    sqnr_db: float | None
    broken: bool
    outputs: int = 1
    gains: tuple[float | str, ...] = ()


def race_here(backend: str, arms: Sequence[Arm], seconds: float, *, progress: object) -> Lap:
    """What one process, this one, which is a child, saw. ``arms``: the file, its fp32, and what else is tried."""
    plugin: Backend = registry.load("backend", backend)
    entries: list[_Entry | str] = [_Entry(plugin, arm) for arm in arms[:2]]
    for arm in arms[2:]:
        try:
            entries.append(_Entry(plugin, arm))
        except QbenchError as error:
            entries.append(str(error))
    runners = [entry for entry in entries if isinstance(entry, _Entry)]
    with runners[0].runner.context():
        answers = [entry.answer() for entry in runners[:2]]
        for entry in runners:
            entry.count_calls(min(_WARMUP_SECONDS, _WARMUP_SHARE * seconds))
        rounds: list[list[float]] = []
        begun, budget = time.perf_counter(), seconds * (1 + _ARM_SECONDS * (len(runners) - 2))
        while len(rounds) < _LEAST_ROUNDS or time.perf_counter() - begun < budget:
            # Whichever comes later has the warmer core.
            order = runners if len(rounds) % 2 == 0 else runners[::-1]
            blocks = {id(entry): entry.time_block() for entry in order}
            rounds.append([blocks[id(entry)] for entry in runners])
            if time.perf_counter() - begun > 5 * budget:
                break
    first, second, *columns = np.array(rounds).T
    ran = iter(columns)
    gains = (float(np.median(first / next(ran))) if isinstance(entry, _Entry) else entry for entry in entries[2:])
    pairs = list(zip(*answers, strict=False))
    broken = any(np.isfinite(theirs).all() and not np.isfinite(own).all() for own, theirs in pairs)
    levels = [level for own, theirs in pairs if (level := _sqnr(own, theirs)) is not None]
    return Lap(
        ratio=float(np.median(first / second)),
        sqnr_db=min(levels, default=None),
        broken=broken,
        outputs=len(pairs),
        gains=tuple(gains),
    )


class _Entry:
    """An arm that is loaded."""

    _calls: int

    def __init__(self, plugin: Backend, arm: Arm) -> None:
        self.runner: Runner = plugin.load(arm.file, threads=arm.threads)
        self._arm = arm
        self._prepared = self.runner.prepare(arm.inputs)

    def answer(self) -> list[Array]:
        """Its outputs, by a first call."""
        return [output.astype(np.float64) for output in self.runner.all_outputs(self.runner(self._prepared))]

    def count_calls(self, seconds: float) -> None:
        """Finds how many calls fill a block, in a warm-up of so many seconds."""
        begun, calls = time.perf_counter(), 0
        while calls < 1 or time.perf_counter() - begun < seconds:
            self.runner(self._prepared)
            calls += 1
        self._calls = max(1, round(_BLOCK_SECONDS / ((time.perf_counter() - begun) / calls)))

    def time_block(self) -> float:
        """Seconds for one example, over a block of calls."""
        if self._arm.flushed:
            denormals.flush(True)
        before = time.perf_counter()
        for _ in range(self._calls):
            self.runner(self._prepared)
        seconds = time.perf_counter() - before
        if self._arm.flushed:
            denormals.flush(False)
        return seconds / self._calls / self._arm.examples


def goes_on(processes: int, elapsed_seconds: float) -> bool:
    """Whether another process races, after so many in that time."""
    if processes >= PROCESSES:
        return False
    return processes < min(FEWEST_PROCESSES, PROCESSES) or elapsed_seconds < RACE_SECONDS


def combine_gains(laps: Sequence[Lap], place: int, tried: int) -> Interval | str:
    """How many times as fast a further arm is, with limits that hold for all ``tried`` together (Bonferroni); a text
    where it could not run."""
    gains = [lap.gains[place] for lap in laps]
    values = [gain for gain in gains if not isinstance(gain, str)]
    if len(values) < len(gains):
        return next(gain for gain in gains if isinstance(gain, str))
    return intervals.exp(intervals.t_interval(np.log(values), 1 - 0.05 / tried))


def combine(laps: Sequence[Lap], runtime: str, opponent: str, trials: Sequence[CauseTrial] = ()) -> Race:
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
        trials=tuple(trials),
    )


def _sqnr(int8: Array, fp32: Array) -> float | None:
    """dB of the fp32 answer over the difference; None where they are equal, or no finite numbers."""
    if int8.shape != fp32.shape or not (np.isfinite(int8).all() and np.isfinite(fp32).all()):
        return None
    noise, signal = float(np.linalg.norm(int8 - fp32)), float(np.linalg.norm(fp32))
    return 20 * float(np.log10(signal / noise)) if noise > 0 and signal > 0 else None
