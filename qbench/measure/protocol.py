"""The two protocols behind one interface: pure schedulers over arms, with the clock and the random order given.

``paired`` answers "how much faster?" on a noisy machine: short blocks of the baseline and of each contender in
random order, block minima, log ratios of neighbours. ``sequential`` is the literature's way (10 warm-up calls, 100
timed calls, mean, one model after the other), so that its figures can be reproduced.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol as Interface

import numpy as np
from numpy.typing import NDArray

from qbench.errors import CaseError
from qbench.measure.samples import Samples

CONTROL = "control"


class Arm(Interface):
    """A loaded case that can be called."""

    def block(self, calls: int) -> NDArray[np.int64]:
        """Nanoseconds of each call; raises ``CaseError`` when the arm has died or hangs."""

    def close(self) -> None:
        """Ends the arm."""


OpenArm = Callable[[str], Arm]
Seconds = Callable[[], float]
Watch = Callable[[str], None]
Outcome = dict[str, "Samples | CaseError"]


class Protocol(ABC):
    """How a group of cases is timed. A group is one baseline and the contenders that are compared with it."""

    name: str

    @abstractmethod
    def measure(self, baseline: str, contenders: Sequence[str], open_arm: OpenArm, watch: Watch) -> Outcome:
        """Samples, or the error that ended it, of the baseline and of every contender.

        ``open_arm(case)`` starts a case's process; the name ``control`` opens a second copy of the baseline.
        ``watch(case)`` hears of each case that is done. An arm that dies ends its own case only.
        """


@dataclass(frozen=True, kw_only=True)
class Sequential(Protocol):
    """Each case alone in a fresh process: ``warmup`` calls unseen, then ``calls`` timed ones."""

    warmup: int = 10
    calls: int = 100
    name: str = "sequential"

    def measure(self, baseline: str, contenders: Sequence[str], open_arm: OpenArm, watch: Watch) -> Outcome:
        """One case after the other; no ratios of neighbours, so no interval on the speed-up."""
        seen: Outcome = {}
        for case in (baseline, *contenders):
            try:
                seen[case] = self._alone(case, open_arm)
            except CaseError as error:
                seen[case] = error
            watch(case)
        return seen

    def _alone(self, case: str, open_arm: OpenArm) -> Samples:
        arm = open_arm(case)
        try:
            arm.block(self.warmup)
            calls = arm.block(self.calls)
        finally:
            arm.close()
        block = np.zeros(len(calls), dtype=np.int64)
        return Samples(protocol=self.name, stopped="fixed", calls_ns=calls, block=block)


@dataclass(frozen=True, kw_only=True)
class Block:
    """How one arm's blocks are made: ``discard`` calls unseen (a switch leaves cold caches), then ``keep``."""

    discard: int
    keep: int


def block_for(call_seconds: float) -> Block:
    """The block of a model that takes so long: 5 to 10 ms of kept calls; above 10 ms a call, 1 and 2.

    After a switch the first calls of a 0.75 ms int8 model ran +57, +11, +5, +1 % (measured): 4 are discarded.
    """
    if call_seconds > 0.010:
        return Block(discard=1, keep=2)
    keep = math.ceil(0.006 / max(call_seconds, 1e-6))
    return Block(discard=4 if call_seconds < 0.003 else 2, keep=max(3, min(keep, 60)))


@dataclass(kw_only=True)
class _Series:
    """One contender's growing observations."""

    case: str
    calls: list[NDArray[np.int64]] = field(default_factory=list)
    baseline_calls: list[NDArray[np.int64]] = field(default_factory=list)
    log_ratios: list[float] = field(default_factory=list)
    process: list[int] = field(default_factory=list)
    seconds: float = 0.0
    stopped: str | None = None
    error: CaseError | None = None


@dataclass(frozen=True, kw_only=True)
class Paired(Protocol):
    """Random-order short blocks of baseline and contenders in turn.

    A round visits every contender that is not done, and the control, in a fresh random order, each next to a block
    of the baseline, the two in random order. A contender is done when ``half_width(log_ratios)`` of its series is
    within ``precision`` after at least ``least_rounds`` rounds, or after ``max_seconds`` of its own measuring; with
    several ``processes`` each generation of them does its share, and the same bound holds within each.
    """

    precision: float
    max_seconds: float
    half_width: Callable[[Sequence[float]], float | None]
    seconds: Seconds
    processes: int = 1
    least_rounds: int = 20
    warmup_calls: int = 10
    warmup_seconds: float = 0.2
    seed: int = 0
    name: str = "paired"

    @property
    def rounds_each(self) -> int:
        """The least rounds of one process: together ``least_rounds``, and the 6 that an interval needs in each."""
        return max(6, math.ceil(self.least_rounds / self.processes))

    def measure(self, baseline: str, contenders: Sequence[str], open_arm: OpenArm, watch: Watch) -> Outcome:
        """Samples with log ratios for every contender, and the baseline's own calls for the baseline."""
        series = {case: _Series(case=case) for case in (*contenders, CONTROL)}
        base = _Series(case=baseline)
        shuffle = random.Random(self.seed)
        for number in range(self.processes):
            alive = [one for one in series.values() if one.error is None]
            for one in alive:
                one.stopped, one.seconds = None, 0.0
            session = _Session(self, baseline, base, number, shuffle, open_arm, watch)
            session.run(alive)
            if base.error is not None:
                break
        return self._outcome(baseline, base, series)

    def _outcome(self, baseline: str, base: _Series, series: dict[str, _Series]) -> Outcome:
        control = series.pop(CONTROL)
        seen: Outcome = {baseline: base.error or self._samples(base, control)}
        for case, one in series.items():
            error = one.error or (base.error and CaseError(f"the baseline {baseline} died: {base.error}"))
            seen[case] = error or self._samples(one, control)
        return seen

    def _samples(self, one: _Series, control: _Series) -> Samples:
        calls, block = _joined(one.calls)
        baseline_calls, baseline_block = _joined(one.baseline_calls)
        return Samples(
            protocol=self.name,
            stopped=one.stopped or "max_seconds",
            calls_ns=calls,
            block=block,
            baseline_ns=baseline_calls,
            baseline_block=baseline_block,
            log_ratios=np.asarray(one.log_ratios),
            process=np.asarray(one.process, dtype=np.int64),
            control_log_ratios=np.asarray(control.log_ratios),
            control_process=np.asarray(control.process, dtype=np.int64),
        )


class _Session:
    """One generation of processes: opens every arm, warms it up, runs rounds, closes every arm."""

    def __init__(
        self,
        plan: Paired,
        baseline: str,
        base: _Series,
        number: int,
        shuffle: random.Random,
        open_arm: OpenArm,
        watch: Watch,
    ) -> None:
        self._plan = plan
        self._baseline = baseline
        self._base = base
        self._number = number
        self._shuffle = shuffle
        self._open = open_arm
        self._watch = watch
        self._arms: dict[str, Arm] = {}
        self._blocks: dict[str, Block] = {}

    def run(self, series: list[_Series]) -> None:
        try:
            self._prepare(self._base, self._baseline)
            for one in series:
                if self._base.error is None:
                    self._prepare(one, one.case)
            self._rounds(series)
        finally:
            for arm in self._arms.values():
                arm.close()

    def _prepare(self, one: _Series, case: str) -> None:
        """Opens an arm and warms it up for the longer of ``warmup_calls`` and ``warmup_seconds``; sizes its block."""
        try:
            arm = self._arms[case] = self._open(case)
            least, started = self._plan.warmup_calls, self._plan.seconds()
            calls = arm.block(least)
            while self._plan.seconds() - started < self._plan.warmup_seconds:
                calls = arm.block(least)
            self._blocks[case] = block_for(float(np.min(calls)) / 1e9)
        except CaseError as error:
            one.error = error
            self._watch(one.case)

    def _rounds(self, series: list[_Series]) -> None:
        control = [one for one in series if one.case == CONTROL and one.error is None]
        open_ = [one for one in series if one.case != CONTROL and one.error is None]
        while open_ and self._base.error is None:
            # The control is needed as long as anything is measured, and only until it is itself precise enough.
            visited = [*open_, *(one for one in control if one.error is None and one.stopped != "precision")]
            self._shuffle.shuffle(visited)
            for one in visited:
                self._pair(one)
                if self._base.error is not None:
                    return
            for one in visited:
                self._judge(one)
            open_ = [one for one in open_ if one.error is None and one.stopped is None]

    def _pair(self, one: _Series) -> None:
        """A block of the contender and one of the baseline, side by side in random order."""
        started = self._plan.seconds()
        pair = [one, self._base]
        self._shuffle.shuffle(pair)
        kept: dict[str, NDArray[np.int64]] = {}
        for part in pair:
            try:
                kept[part.case] = self._block(part.case)
            except CaseError as error:
                part.error = error
                self._watch(part.case)
                return
        own, base = kept[one.case], kept[self._baseline]
        one.calls.append(own)
        one.baseline_calls.append(base)
        self._base.calls.append(base)
        self._base.process.append(self._number)
        # A call below the clock's resolution reads 0; one nanosecond keeps the ratio defined.
        one.log_ratios.append(math.log(max(1, int(own.min())) / max(1, int(base.min()))))
        one.process.append(self._number)
        one.seconds += self._plan.seconds() - started

    def _block(self, case: str) -> NDArray[np.int64]:
        shape = self._blocks[case]
        return self._arms[case].block(shape.discard + shape.keep)[shape.discard :]

    def _judge(self, one: _Series) -> None:
        if one.error is not None:
            return
        mine = [ratio for ratio, number in zip(one.log_ratios, one.process, strict=True) if number == self._number]
        limit = self._plan.max_seconds / self._plan.processes
        if len(mine) < self._plan.rounds_each and one.seconds < limit:
            return
        width = self._plan.half_width(mine)
        if width is not None and width <= self._plan.precision:
            one.stopped = self._base.stopped = "precision"
        elif one.seconds >= limit:
            one.stopped = self._base.stopped = "max_seconds"
        if one.stopped and one.case != CONTROL and self._number == self._plan.processes - 1:
            self._watch(one.case)


def _joined(blocks: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All calls in a row, and the index of the block of each."""
    if not blocks:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty
    index = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
    return np.concatenate(blocks), index.astype(np.int64)
