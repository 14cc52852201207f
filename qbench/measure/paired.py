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
from qbench.measure import remaining
from qbench.measure.block_size import COLD_CALLS, LONG_CALL_SECONDS, PILOTS, Block, block_for, cold_calls, pilot_calls
from qbench.measure.protocol import (
    CONTROL,
    Earlier,
    Keep,
    OpenWorker,
    Outcome,
    Protocol,
    Seconds,
    Tell,
    TimedWorker,
    Watch,
)
from qbench.measure.samples import BlockTiming, Samples, canary_rows, counts, joined, list_canary, split

LOOK_AGAIN = 1.05  # a look at the interval costs the coordinator as much as many rounds, so it waits for news
LEAST_PAIRS = 6  # fewer support no interval at 95 %


@dataclass(kw_only=True)
class _Series:
    """One contender's growing observations."""

    case: str
    calls: list[NDArray[np.int64]] = field(default_factory=list)
    involuntary: list[int | None] = field(default_factory=list)
    faults: list[int | None] = field(default_factory=list)
    canary: list[tuple[int, int] | None] = field(default_factory=list)
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
        open_worker: OpenWorker,
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
            alive = [case_series for case_series in series.values() if case_series.error is None]
            for case_series in alive:
                case_series.stopped, case_series.before, case_series.seconds, case_series.looked = (
                    None,
                    case_series.before + case_series.seconds,
                    0.0,
                    0,
                )
            _Session(self, baseline, base, number, shuffle, open_worker, watch, tell).run(alive)
            died, base.error = base.error or died, None
            if number < self.processes - 1:
                keep(
                    {
                        case_series.case: self._samples(case_series, series[CONTROL])
                        for case_series in (base, *alive)
                        if case_series.calls
                    }
                )
        return self._outcome(base, series, died)

    def _outcome(self, base: _Series, series: dict[str, _Series], died: CaseError | None) -> Outcome:
        control = series.pop(CONTROL)
        outcome: Outcome = {base.case: self._samples(base, control) if base.calls or died is None else died}
        for case, case_series in series.items():
            if case_series.error is None and len(case_series.log_ratios) < LEAST_PAIRS and died is not None:
                case_series.error = CaseError(f"the baseline {base.case} died: {died}")
            outcome[case] = case_series.error or self._samples(case_series, control)
        return outcome

    def _samples(self, case_series: _Series, control: _Series) -> Samples:
        calls, block = joined(case_series.calls)
        baseline_calls, baseline_block = joined(case_series.baseline_calls)
        return Samples(
            protocol=self.name,
            stopped=case_series.stopped or "cut_short",
            calls_ns=calls,
            block=block,
            baseline_ns=baseline_calls,
            baseline_block=baseline_block,
            log_ratios=np.asarray(case_series.log_ratios),
            process=np.asarray(case_series.process, dtype=np.int64),
            control_log_ratios=np.asarray(control.log_ratios),
            control_process=np.asarray(control.process, dtype=np.int64),
            involuntary=counts(case_series.involuntary),
            faults=counts(case_series.faults),
            canary_ns=canary_rows(case_series.canary),
            discarded=case_series.block.discard if case_series.block else 0,
            seconds=case_series.before + case_series.seconds,
        )


def _series(case: str, earlier: Earlier) -> _Series:
    """A series that is empty, or that goes on where a killed run was."""
    kept = earlier.get(case)
    if kept is None:
        return _Series(case=case)
    return _Series(
        case=case,
        calls=split(kept.calls_ns, kept.block),
        baseline_calls=split(kept.baseline_ns, kept.baseline_block),
        involuntary=list(kept.involuntary) or [None] * len(np.unique(kept.block)),
        faults=list(kept.faults) or [None] * len(np.unique(kept.block)),
        canary=list_canary(kept),
        log_ratios=kept.log_ratios.tolist(),
        process=kept.process.tolist(),
        before=kept.seconds,
    )


class _Session:
    """One generation of processes: opens every worker, warms it up, runs rounds, closes every worker."""

    def __init__(
        self,
        plan: Paired,
        baseline: str,
        base: _Series,
        number: int,
        shuffle: random.Random,
        open_worker: OpenWorker,
        watch: Watch,
        tell: Tell,
    ) -> None:
        self._plan = plan
        self._baseline = baseline
        self._base = base
        self._number = number
        self._shuffle = shuffle
        self._open = open_worker
        self._watch = watch
        self._tell = tell
        self._told = -math.inf
        self._workers: dict[str, TimedWorker] = {}

    def run(self, series: list[_Series]) -> None:
        all_series = [(self._base, self._base.case), *((case_series, case_series.case) for case_series in series)]
        self._tell(*remaining.starting(self._baseline, self._number, self._plan.processes, len(all_series)))
        try:
            self._start(all_series)
            for case_series, case in all_series:
                if self._base.error is None and case_series.error is None:
                    self._prepare(case_series, case)
                if case_series.case == CONTROL and case_series.block is not None:
                    self._base.block = case_series.block
            self._rounds(series)
        finally:
            for worker in self._workers.values():
                worker.close()

    def _start(self, all_series: list[tuple[_Series, str]]) -> None:
        """All processes start side by side; then each loads its case, before any is warmed up."""
        for act in (self._open_one, lambda case: self._workers[case].load()):
            for case_series, case in all_series:
                try:
                    if case_series.error is None and self._base.error is None:
                        act(case)
                except CaseError as error:
                    case_series.error = error
                    self._watch(case_series.case)

    def _open_one(self, case: str) -> None:
        self._workers[case] = self._open(case)

    def _prepare(self, case_series: _Series, case: str) -> None:
        """Warms a worker up for the longer of ``warmup_calls`` and ``warmup_seconds``, and sizes its block once."""
        try:
            worker = self._workers[case]
            least, started = self._plan.warmup_calls, self._plan.seconds()
            timing = worker.block(least)
            # Where pilots follow, they are the second half of the warm-up.
            warm = self._plan.warmup_seconds / (1 if case_series.block is not None or case == self._baseline else 2)
            while self._plan.seconds() - started < warm:
                timing = worker.block(least)
            if case_series.block is None:
                seconds = float(np.min(timing.calls_ns)) / 1e9
                case_series.block = block_for(seconds, self._pilot(worker, seconds))
        except CaseError as error:
            case_series.error = error
            self._watch(case_series.case)

    def _pilot(self, worker: TimedWorker, seconds: float) -> int:
        """How many calls are cold after a switch: blocks of this worker, each after another one has run."""
        baseline = self._workers[self._baseline]
        if seconds > LONG_CALL_SECONDS or worker is baseline:  # the baseline takes over its own copy's: the control's
            return COLD_CALLS
        calls, pilots = pilot_calls(seconds), []
        for _ in range(PILOTS):
            try:
                baseline.block(calls)
            except CaseError as error:
                self._base.error = error
                return COLD_CALLS
            pilots.append(worker.block(calls).calls_ns)
        return cold_calls(pilots)

    def _rounds(self, series: list[_Series]) -> None:
        control = [case_series for case_series in series if case_series.case == CONTROL and case_series.error is None]
        open_ = [case_series for case_series in series if case_series.case != CONTROL and case_series.error is None]
        while open_ and self._base.error is None:
            # The control is needed as long as anything is measured, and only until it is itself precise enough.
            visited = [
                *open_,
                *(
                    case_series
                    for case_series in control
                    if case_series.error is None and case_series.stopped != "precision"
                ),
            ]
            self._say(open_)
            self._shuffle.shuffle(visited)
            for case_series in visited:
                self._pair(case_series)
                if self._base.error is not None:
                    return
            for case_series in visited:
                self._judge(case_series)
            open_ = [case_series for case_series in open_ if case_series.error is None and case_series.stopped is None]

    def _say(self, open_: Sequence[_Series]) -> None:
        """Tells what is being measured and what is left, at most once a second."""
        now, plan = self._plan.seconds(), self._plan
        if now - self._told >= remaining.SAY_SECONDS:
            self._told, spent = now, [case_series.seconds for case_series in open_]
            most = plan.max_seconds / plan.processes
            self._tell(*remaining.measuring(open_[0].case, self._number, plan.processes, spent, most))

    def _pair(self, case_series: _Series) -> None:
        """A block of the contender and one of the baseline, side by side in random order."""
        started = self._plan.seconds()
        pair = [case_series, self._base]
        self._shuffle.shuffle(pair)
        kept: dict[str, BlockTiming] = {}
        for part in pair:
            try:
                kept[part.case] = self._block(part)
            except CaseError as error:
                part.error = error
                self._watch(part.case)
                return
        case_series.seconds += self._plan.seconds() - started
        if any(timing.suspended for timing in kept.values()):
            return  # the machine slept: neither block says anything of the model
        self._keep(case_series, kept[case_series.case], kept[self._baseline])

    def _keep(self, case_series: _Series, timing: BlockTiming, beside: BlockTiming) -> None:
        own, base = timing.calls_ns, beside.calls_ns
        case_series.calls.append(own)
        case_series.baseline_calls.append(base)
        self._base.calls.append(base)
        for part, block in ((case_series, timing), (self._base, beside)):
            part.involuntary.append(block.involuntary)
            part.faults.append(block.faults)
            part.canary.append(block.canary_ns)
        self._base.process.append(self._number)
        # A call below the clock's resolution reads 0; one nanosecond keeps the ratio defined.
        case_series.log_ratios.append(math.log(max(1, int(own.min())) / max(1, int(base.min()))))
        case_series.process.append(self._number)

    def _block(self, case_series: _Series) -> BlockTiming:
        assert case_series.block is not None
        timing = self._workers[case_series.case].block(case_series.block.discard + case_series.block.keep)
        return replace(timing, calls_ns=timing.calls_ns[case_series.block.discard :])

    def _judge(self, case_series: _Series) -> None:
        if case_series.error is not None:
            return
        own_ratios = [
            ratio
            for ratio, number in zip(case_series.log_ratios, case_series.process, strict=True)
            if number == self._number
        ]
        limit = self._plan.max_seconds / self._plan.processes
        if case_series.seconds < limit and len(own_ratios) < max(
            self._plan.rounds_each, case_series.looked * LOOK_AGAIN
        ):
            return
        case_series.looked = len(own_ratios)
        width = self._plan.half_width(own_ratios)
        if width is not None and width <= self._plan.precision_each:
            case_series.stopped = self._base.stopped = "precision"
        elif case_series.seconds >= limit:
            case_series.stopped = self._base.stopped = "max_seconds"
        if case_series.stopped and case_series.case != CONTROL and self._number == self._plan.processes - 1:
            self._watch(case_series.case)
