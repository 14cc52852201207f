"""The paired protocol as a race: every case of a setting at once, and to the end those that may be shipped.

The first generation of processes is the screening: a few rounds of everyone, one block each, in fresh random order.
What is shown to be slower than the leader of its kind leaves (``race_rules``); the rest meet again in further
generations, beside a second copy of the fastest fp32 as control, until it is decided.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from qbench.errors import CaseError
from qbench.measure.generation import Generation, Pace
from qbench.measure.pairing import Minima, find_minima, pair_blocks
from qbench.measure.protocol import CONTROL, Earlier, Keep, OpenWorker, Outcome, Protocol, Seconds, Watch
from qbench.measure.race_rules import Arm, RaceRules, Standing, judge
from qbench.measure.remaining import Remaining
from qbench.measure.samples import Samples
from qbench.measure.series import Series, join_controls, resume_series, split_controls
from qbench.measure.undisturbed_blocks import lowest_level
from qbench.progress.callback import Progress, tell_nobody

RACING, SCREENED, LEFT, CUT_SHORT = "racing", "screened", "left", "cut_short"
DIED = "died: "
MOST_DEATHS = 2  # an fp32 that dies is opened anew in the next generation, once
Heats = Callable[[Sequence[Arm], "str | None", int], list[list[Arm]]]


def all_at_once(arms: Sequence[Arm], fastest: str | None, first: int) -> list[list[Arm]]:
    """One heat with every arm in it: for a machine whose memory holds them all."""
    return [list(arms)]


@dataclass(frozen=True, kw_only=True)
class Race(Protocol):
    """The arms of one setting (model, threads, batch) over all runtimes, and by which rules they race.

    ``heats(arms, fastest, blocks)`` splits those that are in where memory does not hold them all; each heat also brings
    the fastest fp32, and the number of blocks so far turns the order.
    ``first_process`` numbers the first generation, so that blocks of an earlier race are never taken for neighbours.
    ``calm_ns``: the least that the canary is known to take on this core.
    """

    arms: tuple[Arm, ...]
    rules: RaceRules
    clock: Seconds
    screening_rounds: int = 6
    rounds: int = 7
    warmup_calls: int = 10
    warmup_seconds: float = 0.2
    seed: int = 0
    heats: Heats = all_at_once
    first_process: int = 0
    calm_ns: float | None = None
    name: str = "paired"

    def measure(
        self,
        baseline: str,
        contenders: Sequence[str],
        open_worker: OpenWorker,
        watch: Watch,
        *,
        tell: Progress = tell_nobody,
        earlier: Earlier = MappingProxyType({}),
        keep: Keep = lambda known: None,
    ) -> Outcome:
        """Samples of every arm, with the rounds by which two of them are paired; what ``stopped`` each says how far it
        came. Kept after every generation; what is kept tells how the race stands, so it goes on there."""
        state = _State(race=self, watch=watch, remaining=Remaining(clock=self.clock, tell=tell))
        state.resume(earlier)
        standing = state.judge() if earlier else Standing(staying=self.arms, leaving=(), leader=None, fastest=None)
        while standing.staying and not standing.ended:
            before = state.count_blocks()
            for heat in self.heats(standing.staying, standing.fastest, before):
                state.run_generation(heat, standing, open_worker)
            if state.count_blocks() == before:
                state.give_up(standing.staying)
            state.bury_dead()
            keep(state.list_known())
            standing = state.judge()
        return state.make_outcome()


@dataclass(kw_only=True)
class _State:
    """What is known of each arm: its series, how it stopped, the error that ended it; the control's log ratios."""

    race: Race
    watch: Watch
    remaining: Remaining
    series: dict[str, Series] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    errors: dict[str, CaseError] = field(default_factory=dict)
    deaths: dict[str, int] = field(default_factory=dict)
    controls: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    def resume(self, earlier: Earlier) -> None:
        """Starts empty, or where a killed run was."""
        for arm in self.race.arms:
            kept = earlier.get(arm.case)
            self.series[arm.case] = resume_series(arm.case, kept)
            label = RACING if kept is None else kept.stopped
            if label.startswith(DIED):
                self._end(arm.case, CaseError(label.removeprefix(DIED)))
            elif label != RACING:
                self._end(arm.case, label)
        if (control := earlier.get(CONTROL)) is not None:
            self.controls = split_controls(control)

    def run_generation(self, arms: Sequence[Arm], standing: Standing, open_worker: OpenWorker) -> None:
        """One generation of these arms, with the control where the screening is over."""
        later = (process + 1 for series in self.series.values() for process in set(series.process))
        number = max((self.race.first_process, *later))
        entries = [(self.series[arm.case], arm.case) for arm in arms]
        fastest = standing.fastest or (next(iter(_list_fp32(arms)), None) if self.race.rules.everything else None)
        control = Series(case=CONTROL)
        if fastest is not None and fastest in {case for _, case in entries}:
            control.block, control.discarded = self.series[fastest].block, self.series[fastest].discarded
            entries.append((control, fastest))
        screening = standing.fastest is None and not self.race.rules.everything
        rounds = self.race.screening_rounds if screening else self.race.rounds
        more = self.race.rules.least if screening else max(0, standing.more - 1)
        self.remaining.start(cases=len(arms), rounds=rounds, screening=screening, later=more)
        Generation(
            number=number,
            entries=entries,
            pace=self._set_pace(rounds, _list_candidates(arms) if screening else ()),
            open_worker=open_worker,
            shuffle=random.Random(f"{self.race.seed}/{number}"),
            advance=self.remaining.advance,
        ).run()
        if fastest is not None:
            minima = self._list_minima([control, self.series[fastest]])
            self.controls.update(pair_blocks(*minima).log_ratios)

    def _set_pace(self, rounds: int, contenders: Sequence[str]) -> Pace:
        rules = self.race.rules
        generations = rules.least + (not rules.everything)
        return Pace(
            rounds=rounds,
            most_seconds=rules.max_seconds / generations,
            warmup_calls=self.race.warmup_calls,
            warmup_seconds=self.race.warmup_seconds,
            clock=self.race.clock,
            contenders=frozenset(contenders),
        )

    def count_blocks(self) -> int:
        """How many blocks are kept of all arms."""
        return sum(len(series.timings) for series in self.series.values())

    def give_up(self, arms: Sequence[Arm]) -> None:
        """No block of a whole generation could be kept: what has not died was asleep in each."""
        for arm in arms:
            series = self.series[arm.case]
            if series.error is None:
                series.error = CaseError("none of its blocks can be kept: the machine was suspended in each")

    def bury_dead(self) -> None:
        """A worker's death ends its case; an fp32 that others are held against may try again, while blocks of it are
        known."""
        for arm in self.race.arms:
            series = self.series[arm.case]
            if series.error is None:
                continue
            self.deaths[arm.case] = self.deaths.get(arm.case, 0) + 1
            if arm.role != "fp32" or not series.timings:
                self._end(arm.case, series.error)
            elif self.deaths[arm.case] >= MOST_DEATHS:
                self._end(arm.case, CUT_SHORT)
            series.error = None
        fp32 = _list_fp32(self.race.arms)
        if fp32 and all(case in self.errors for case in fp32):
            for arm in self.race.arms:
                if arm.case not in self.errors:
                    reason = self.errors[arm.baseline or fp32[0]]
                    self._end(arm.case, CaseError(f"the baseline {arm.baseline} died: {reason}"))

    def judge(self) -> Standing:
        """How the race stands; those that leave are done."""
        racing = [arm for arm in self.race.arms if arm.case not in self.stopped and arm.case not in self.errors]
        minima = dict(zip(self.series, self._list_minima(list(self.series.values())), strict=True))
        spent = {case: series.seconds for case, series in self.series.items()}
        tried = sum(arm.role == "candidate" for arm in self.race.arms)
        standing = judge(racing, minima, self.race.rules, spent=spent, tried=tried)
        for case in standing.leaving:
            self._end(case, SCREENED if len(set(self.series[case].process)) == 1 else LEFT)
        for case, how in standing.ended.items():
            self._end(case, how if self.race.rules.most else SCREENED)
        return standing

    def _list_minima(self, every: Sequence[Series]) -> list[Minima]:
        """The fastest call of each block of each of them, held against one level of the canary."""
        readings = (series.list_canary() for series in (*every, *self.series.values()))
        calm_ns = lowest_level(readings, self.race.calm_ns)
        return [find_minima(series.list_keys(), series.timings, calm_ns) for series in every]

    def _end(self, case: str, how: str | CaseError) -> None:
        if isinstance(how, CaseError):
            self.errors[case] = how
        else:
            self.stopped[case] = how
        self.watch(case)

    def list_known(self) -> Mapping[str, Samples]:
        """What is kept of every arm and of the control; a later part of the run goes on from it."""
        known = {}
        for case, series in self.series.items():
            label = f"{DIED}{self.errors[case]}" if case in self.errors else self.stopped.get(case, RACING)
            known[case] = series.samples(self.race.name, label, self.controls)
        control = Samples(protocol=self.race.name, stopped=RACING, **join_controls(self.controls))
        return {**known, CONTROL: control}

    def make_outcome(self) -> Outcome:
        """The samples of each arm, or its error."""
        return {
            case: self.errors[case]
            if case in self.errors
            else series.samples(self.race.name, self.stopped.get(case, CUT_SHORT), self.controls)
            for case, series in self.series.items()
        }


def _list_candidates(arms: Sequence[Arm]) -> list[str]:
    return [arm.case for arm in arms if arm.role == "candidate"]


def _list_fp32(arms: Sequence[Arm]) -> list[str]:
    return [arm.case for arm in arms if arm.role == "fp32"]
