"""One generation of processes in a race: all start side by side, load, warm up, run rounds of one block each in random
order, and end."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from qbench.errors import CaseError
from qbench.measure import warm_up
from qbench.measure.protocol import OpenWorker, Seconds, TimedWorker
from qbench.measure.series import Series

SWITCH_SECONDS = 0.005  # a neighbour's calls between two pilots: about one block
COSTLY = 2.0  # a contender whose blocks take so many times as long as the shortest runs in every second round


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How a generation is run: its rounds, the most seconds of blocks for one arm in it, and how workers are warmed
    up. ``contenders``: cases that are looked at for the first time; of these what takes far longer than the shortest
    runs in every second round only."""

    rounds: int
    most_seconds: float
    warmup_calls: int
    warmup_seconds: float
    clock: Seconds
    contenders: frozenset[str] = frozenset()


@dataclass(kw_only=True)
class Generation:
    """``entries``: each arm's series with the case whose worker serves it. An arm that dies keeps its error in its
    series and is visited no more; the others go on. ``advance(round)`` hears of each round that begins."""

    number: int
    entries: Sequence[tuple[Series, str]]
    pace: Pace
    open_worker: OpenWorker
    shuffle: random.Random
    advance: Callable[[int], None]
    _workers: dict[str, TimedWorker] = field(default_factory=dict)
    _round: int = 0

    def run(self) -> None:
        """Adds the blocks of this generation to the series."""
        every = [series for series, _ in self.entries]
        try:
            self._start()
            for series in every:
                self._attempt(series, self._warm)
            for series in every:
                if series.block is None:
                    self._attempt(series, self._find_block)
            self._run_rounds(every)
        finally:
            for worker in self._workers.values():
                worker.close()

    def _start(self) -> None:
        """All processes start side by side; then each loads its case, before any is warmed up."""
        opens = {series.case: case for series, case in self.entries}

        def open_one(series: Series) -> None:
            self._workers[series.case] = self.open_worker(opens[series.case])

        for act in (open_one, lambda series: self._workers[series.case].load()):
            for series, _ in self.entries:
                self._attempt(series, act)

    def _attempt(self, series: Series, act: Callable[[Series], None]) -> None:
        if series.error is None:
            try:
                act(series)
            except CaseError as error:
                series.error = error

    def _warm(self, series: Series) -> None:
        seconds = self.pace.warmup_seconds / (1 if series.block else 2)  # the pilots are the rest of it
        series.call_seconds = warm_up.warm(
            self._workers[series.case], calls=self.pace.warmup_calls, seconds=seconds, clock=self.pace.clock
        )

    def _find_block(self, series: Series) -> None:
        others = [other for other, _ in self.entries if other is not series and other.error is None]
        neighbour = min(others, key=lambda other: abs(other.call_seconds - SWITCH_SECONDS), default=None)

        def switch(calls: int) -> None:
            assert neighbour is not None
            most = max(1, math.ceil(SWITCH_SECONDS / max(neighbour.call_seconds, 1e-6)))
            self._attempt(neighbour, lambda other: self._run_unseen(other, min(calls, most)))

        worker = self._workers[series.case]
        series.block = warm_up.find_block(worker, series.call_seconds, None if neighbour is None else switch)

    def _run_unseen(self, series: Series, calls: int) -> None:
        self._workers[series.case].block(calls)

    def _run_rounds(self, every: Sequence[Series]) -> None:
        before = {series.case: series.seconds for series in every}
        costly = self._find_costly(every)
        for number in range(self.pace.rounds):
            alive = [series for series in every if series.error is None]
            if not alive or max(series.seconds - before[series.case] for series in alive) >= self.pace.most_seconds:
                return
            self.advance(number)
            self._round = number
            self.shuffle.shuffle(alive)
            for series in alive:
                if series.case not in costly or number % 2 == 0:
                    self._attempt(series, self._take_block)

    def _find_costly(self, every: Sequence[Series]) -> set[str]:
        """The contenders whose blocks take so long that they are no rivals of the others."""
        seconds = {
            series.case: series.call_seconds * (series.block.discard + series.block.keep)
            for series in every
            if series.case in self.pace.contenders and series.block is not None and series.error is None
        }
        return {case for case, taken in seconds.items() if taken > COSTLY * min(seconds.values())}

    def _take_block(self, series: Series) -> None:
        assert series.block is not None
        started = self.pace.clock()
        timing = self._workers[series.case].block(series.block.discard + series.block.keep)
        series.seconds += self.pace.clock() - started
        if not timing.suspended:  # the machine slept: the block says nothing of the model
            series.keep(timing.without_first(series.block.discard), process=self.number, number=self._round)
