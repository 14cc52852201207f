"""The paired protocol: random-order short blocks of a baseline and its contenders in turn, with a live control."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from qbench.errors import CaseError
from qbench.measure import in_hand
from qbench.measure.blocks import COLD_CALLS, LONG_CALL_SECONDS, PILOTS, Block, block_for, cold_calls, pilot_calls
from qbench.measure.protocol import CONTROL, Arm, Earlier, Keep, OpenArm, Outcome, Protocol, Seconds, Tell, Watch
from qbench.measure.samples import Samples, Seen, counts, joined, split

LOOK_AGAIN = 1.05  # a look at the interval costs the coordinator as much as many rounds, so it waits for news
LEAST_PAIRS = 6  # fewer support no interval at 95 %


@dataclass(kw_only=True)
class _Series:
    """One contender's growing observations."""

    case: str
    calls: list[NDArray[np.int64]] = field(default_factory=list)
    involuntary: list[int | None] = field(default_factory=list)
    faults: list[int | None] = field(default_factory=list)
    block: Block | None = None
    baseline_calls: list[NDArray[np.int64]] = field(default_factory=list)
    log_ratios: list[float] = field(default_factory=list)
    process: list[int] = field(default_factory=list)
    before: float = 0.0
    seconds: float = 0.0
    looked: int = 0
    stopped: str | None = None
    error: CaseError | None = None


@dataclass(frozen=True, kw_only=True)
class Paired(Protocol):
    """Random-order short blocks of baseline and contenders in turn.

    A round visits every contender that is not done, and the control, in a fresh random order, each next to a block
    of the baseline, the two in random order. A contender is done when ``half_width(log_ratios)`` of its series is
    within ``precision`` after at least ``least_rounds`` rounds, or after ``max_seconds`` of its own measuring; with
    several ``processes`` each generation of them does its share (``rounds_each``, ``precision_each``).
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
        return max(LEAST_PAIRS, math.ceil(self.least_rounds / self.processes))

    @property
    def precision_each(self) -> float:
        """The half width at which one process is done: the mean over all of them is then within ``precision``, as far
        as blocks go; how the processes differ is for the interval over them to say."""
        return self.precision * math.sqrt(self.processes)

    def measure(
        self,
        baseline: str,
        contenders: Sequence[str],
        open_arm: OpenArm,
        watch: Watch,
        *,
        tell: Tell = lambda text, share: None,
        earlier: Earlier = MappingProxyType({}),
        keep: Keep = lambda known: None,
    ) -> Outcome:
        """Samples with log ratios for every contender, and the baseline's own calls for the baseline.

        Kept after every generation of processes but the last. A generation whose baseline dies is cut short there,
        and the next one goes on with a fresh baseline: what was measured before is not lost.
        """
        series = {case: _series(case, earlier) for case in (*contenders, CONTROL)}
        base = _series(baseline, earlier)
        shuffle = random.Random(self.seed)
        first = max(base.process, default=-1) + 1
        died: CaseError | None = None
        for number in range(first, self.processes):
            alive = [one for one in series.values() if one.error is None]
            for one in alive:
                one.stopped, one.before, one.seconds, one.looked = None, one.before + one.seconds, 0.0, 0
            _Session(self, baseline, base, number, shuffle, open_arm, watch, tell).run(alive)
            died, base.error = base.error or died, None
            if number < self.processes - 1:
                keep({one.case: self._samples(one, series[CONTROL]) for one in (base, *alive) if one.calls})
        return self._outcome(base, series, died)

    def _outcome(self, base: _Series, series: dict[str, _Series], died: CaseError | None) -> Outcome:
        control = series.pop(CONTROL)
        seen: Outcome = {base.case: self._samples(base, control) if base.calls or died is None else died}
        for case, one in series.items():
            if one.error is None and len(one.log_ratios) < LEAST_PAIRS and died is not None:
                one.error = CaseError(f"the baseline {base.case} died: {died}")
            seen[case] = one.error or self._samples(one, control)
        return seen

    def _samples(self, one: _Series, control: _Series) -> Samples:
        calls, block = joined(one.calls)
        baseline_calls, baseline_block = joined(one.baseline_calls)
        return Samples(
            protocol=self.name,
            stopped=one.stopped or "cut_short",
            calls_ns=calls,
            block=block,
            baseline_ns=baseline_calls,
            baseline_block=baseline_block,
            log_ratios=np.asarray(one.log_ratios),
            process=np.asarray(one.process, dtype=np.int64),
            control_log_ratios=np.asarray(control.log_ratios),
            control_process=np.asarray(control.process, dtype=np.int64),
            involuntary=counts(one.involuntary),
            faults=counts(one.faults),
            discarded=one.block.discard if one.block else 0,
            seconds=one.before + one.seconds,
        )


def _series(case: str, earlier: Earlier) -> _Series:
    """A series that is empty, or that goes on where a killed run was."""
    found = earlier.get(case)
    if found is None:
        return _Series(case=case)
    return _Series(
        case=case,
        calls=split(found.calls_ns, found.block),
        baseline_calls=split(found.baseline_ns, found.baseline_block),
        involuntary=list(found.involuntary) or [None] * len(np.unique(found.block)),
        faults=list(found.faults) or [None] * len(np.unique(found.block)),
        log_ratios=found.log_ratios.tolist(),
        process=found.process.tolist(),
        before=found.seconds,
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
        tell: Tell,
    ) -> None:
        self._plan = plan
        self._baseline = baseline
        self._base = base
        self._number = number
        self._shuffle = shuffle
        self._open = open_arm
        self._watch = watch
        self._tell = tell
        self._told = -math.inf
        self._arms: dict[str, Arm] = {}

    def run(self, series: list[_Series]) -> None:
        everyone = [(self._base, self._base.case), *((one, one.case) for one in series)]
        self._tell(*in_hand.starting(self._baseline, self._number, self._plan.processes, len(everyone)))
        try:
            self._start(everyone)
            for one, case in everyone:
                if self._base.error is None and one.error is None:
                    self._prepare(one, case)
                if one.case == CONTROL and one.block is not None:
                    self._base.block = one.block
            self._rounds(series)
        finally:
            for arm in self._arms.values():
                arm.close()

    def _start(self, everyone: list[tuple[_Series, str]]) -> None:
        """All processes start side by side; then each loads its case, before any is warmed up."""
        for act in (self._open_one, lambda case: self._arms[case].load()):
            for one, case in everyone:
                try:
                    if one.error is None and self._base.error is None:
                        act(case)
                except CaseError as error:
                    one.error = error
                    self._watch(one.case)

    def _open_one(self, case: str) -> None:
        self._arms[case] = self._open(case)

    def _prepare(self, one: _Series, case: str) -> None:
        """Warms an arm up for the longer of ``warmup_calls`` and ``warmup_seconds``, and sizes its block once."""
        try:
            arm = self._arms[case]
            least, started = self._plan.warmup_calls, self._plan.seconds()
            seen = arm.block(least)
            # Where pilots follow, they are the second half of the warm-up.
            warm = self._plan.warmup_seconds / (1 if one.block is not None or case == self._baseline else 2)
            while self._plan.seconds() - started < warm:
                seen = arm.block(least)
            if one.block is None:
                seconds = float(np.min(seen.calls_ns)) / 1e9
                one.block = block_for(seconds, self._pilot(arm, seconds))
        except CaseError as error:
            one.error = error
            self._watch(one.case)

    def _pilot(self, arm: Arm, seconds: float) -> int:
        """How many calls are cold after a switch: blocks of this arm, each after another one has run."""
        baseline = self._arms[self._baseline]
        if seconds > LONG_CALL_SECONDS or arm is baseline:  # the baseline takes over its own copy's: the control's
            return COLD_CALLS
        calls, pilots = pilot_calls(seconds), []
        for _ in range(PILOTS):
            try:
                baseline.block(calls)
            except CaseError as error:
                self._base.error = error
                return COLD_CALLS
            pilots.append(arm.block(calls).calls_ns)
        return cold_calls(pilots)

    def _rounds(self, series: list[_Series]) -> None:
        control = [one for one in series if one.case == CONTROL and one.error is None]
        open_ = [one for one in series if one.case != CONTROL and one.error is None]
        while open_ and self._base.error is None:
            # The control is needed as long as anything is measured, and only until it is itself precise enough.
            visited = [*open_, *(one for one in control if one.error is None and one.stopped != "precision")]
            self._say(open_)
            self._shuffle.shuffle(visited)
            for one in visited:
                self._pair(one)
                if self._base.error is not None:
                    return
            for one in visited:
                self._judge(one)
            open_ = [one for one in open_ if one.error is None and one.stopped is None]

    def _say(self, open_: Sequence[_Series]) -> None:
        """Tells what is being measured and what is left, at most once a second."""
        now, plan = self._plan.seconds(), self._plan
        if now - self._told >= in_hand.SAY_SECONDS:
            self._told, spent = now, [one.seconds for one in open_]
            most = plan.max_seconds / plan.processes
            self._tell(*in_hand.measuring(open_[0].case, self._number, plan.processes, spent, most))

    def _pair(self, one: _Series) -> None:
        """A block of the contender and one of the baseline, side by side in random order."""
        started = self._plan.seconds()
        pair = [one, self._base]
        self._shuffle.shuffle(pair)
        kept: dict[str, Seen] = {}
        for part in pair:
            try:
                kept[part.case] = self._block(part)
            except CaseError as error:
                part.error = error
                self._watch(part.case)
                return
        one.seconds += self._plan.seconds() - started
        if any(seen.suspended for seen in kept.values()):
            return  # the machine slept: neither block says anything of the model
        self._keep(one, kept[one.case], kept[self._baseline])

    def _keep(self, one: _Series, seen: Seen, beside: Seen) -> None:
        own, base = seen.calls_ns, beside.calls_ns
        one.calls.append(own)
        one.baseline_calls.append(base)
        self._base.calls.append(base)
        for part, block in ((one, seen), (self._base, beside)):
            part.involuntary.append(block.involuntary)
            part.faults.append(block.faults)
        self._base.process.append(self._number)
        # A call below the clock's resolution reads 0; one nanosecond keeps the ratio defined.
        one.log_ratios.append(math.log(max(1, int(own.min())) / max(1, int(base.min()))))
        one.process.append(self._number)

    def _block(self, one: _Series) -> Seen:
        assert one.block is not None
        seen = self._arms[one.case].block(one.block.discard + one.block.keep)
        return replace(seen, calls_ns=seen.calls_ns[one.block.discard :])

    def _judge(self, one: _Series) -> None:
        if one.error is not None:
            return
        mine = [ratio for ratio, number in zip(one.log_ratios, one.process, strict=True) if number == self._number]
        limit = self._plan.max_seconds / self._plan.processes
        if one.seconds < limit and len(mine) < max(self._plan.rounds_each, one.looked * LOOK_AGAIN):
            return
        one.looked = len(mine)
        width = self._plan.half_width(mine)
        if width is not None and width <= self._plan.precision_each:
            one.stopped = self._base.stopped = "precision"
        elif one.seconds >= limit:
            one.stopped = self._base.stopped = "max_seconds"
        if one.stopped and one.case != CONTROL and self._number == self._plan.processes - 1:
            self._watch(one.case)
