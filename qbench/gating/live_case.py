"""A case that is run again: fresh processes of the baseline's artifact twice, of the run's, and where a speed-up is
promised of its fp32, one generation after the other, in the race's rounds (``measure.generation``).

Rounds of one block each in random order, ratios of blocks of one round: what slows a round cancels. Where a process
dies, the case ends with its reason.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from qbench.errors import CaseError
from qbench.gating.sequential_test import (
    InterimAnalysis,
    ProcessPair,
    Rerun,
    analyze,
    analyze_promise,
    analyze_start,
    is_analysis_due,
    process_pair,
)
from qbench.measure.generation import Generation, Pace
from qbench.measure.group import RemoteWorker
from qbench.measure.pairing import Minima, PairedBlocks, find_minima, pair_blocks
from qbench.measure.protocol import CONTROL
from qbench.measure.series import Series
from qbench.measure.undisturbed_blocks import lowest_level
from qbench.measure.worker import WorkerSpec
from qbench.process.child_process import Limits

BASELINE, CONTENDER, FP32 = "baseline", "contender", "fp32"
# The baseline's artifact under the contender's libraries: what an upgrade does to a file that stays as it is.
KEPT = "kept"
# 20 rounds of 6 ms blocks take half a second beside the 3 to 5 s that fresh interpreters take to start, and leave
# 0.5 % of spread within a process beside the 1 to 1.5 % from one to the next.
ROUNDS = 20
# For long calls: 1.2 s of blocks for each arm keep 12 generations within 90 s at 50 ms a call.
MAX_SECONDS = 1.2
WARMUP_CALLS, WARMUP_SECONDS = 10, 0.2


class ArmFailed(CaseError):
    """The process of an ``arm`` died, or could not load its artifact."""

    def __init__(self, arm: str, text: str) -> None:
        super().__init__(text)
        self.arm = arm


@dataclass(frozen=True, kw_only=True)
class LiveRules:
    """What is to be decided: the largest slowdown (0.05: 5 %), the smallest speed-up over fp32, the largest growth of
    the cold start; None: not asked."""

    tolerance: float | None = None
    promise: float | None = None
    start: float | None = None

    @property
    def asks(self) -> bool:
        """Whether there is a rule at all."""
        return any(rule is not None for rule in (self.tolerance, self.promise, self.start))

    @property
    def sharing(self) -> int:
        """How many of them are tests on the time of a call, which share their error."""
        return sum(rule is not None for rule in (self.tolerance, self.promise))


@dataclass(kw_only=True)
class LiveCase:
    """One case with what it has shown so far. ``specs``: the artifact of each arm, by ``BASELINE``, ``CONTENDER`` and,
    where a speed-up is promised, ``FP32``; with ``KEPT`` that arm is judged in the same processes' rounds, too."""

    case: str
    specs: Mapping[str, WorkerSpec]
    rules: LiveRules
    limits: Limits
    seed: int = 0
    open_remote: Callable[..., Any] = RemoteWorker
    clock: Callable[[], float] = time.monotonic
    names: Mapping[str, str] = field(default_factory=dict)  # of the arms, in messages, where they have others
    pairs: list[ProcessPair] = field(default_factory=list)
    kept_pairs: list[ProcessPair] = field(default_factory=list)
    spent: float = 0.0
    _error: CaseError | None = None
    _analyses: dict[str, InterimAnalysis] = field(default_factory=dict)
    _series: dict[str, Series] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether a rule is still undecided, and more process pairs may decide it."""
        if self._error is not None:
            return False
        return not self._analyses or not all(analysis.decided for analysis in self._analyses.values())

    @property
    def seconds_per_pair(self) -> float:
        """What a process pair took on average; 0 before the first."""
        return self.spent / len(self.pairs) if self.pairs else 0.0

    def run_pair(self) -> None:
        """One more generation of fresh processes, and an interim analysis where one is due."""
        started = self.clock()
        try:
            self.pairs.append(self.measure_pair(len(self.pairs)))
        except CaseError as error:
            self._error = error
        else:
            if is_analysis_due(len(self.pairs)):
                self._analyze()
        self.spent += self.clock() - started

    def conclude(self) -> Rerun:
        """What is known, whether it is decided or not."""
        analyses = self._list_analyses()
        return Rerun(
            pairs=tuple(self.pairs),
            analysis=analyses.get("time"),
            promise=analyses.get("promise"),
            start=analyses.get("start"),
            reason=None if self._error is None else str(self._error),
            cut=self.is_open,
            spent=self.spent,
        )

    def conclude_kept(self) -> Rerun:
        """What is known of the arm ``KEPT``, by itself."""
        analyses = self._list_analyses()
        return replace(
            self.conclude(),
            pairs=tuple(self.kept_pairs),
            analysis=analyses.get("kept time"),
            promise=None,
            start=analyses.get("kept start"),
        )

    def _list_analyses(self) -> Mapping[str, InterimAnalysis]:
        """The last ones by name; none where a process ended the case, whatever was known before."""
        return {} if self._error else self._analyses

    def _analyze(self) -> None:
        rules = self.rules
        # Without a rule of its own the change is known all the same, and decides nothing.
        tolerance = 0.05 if rules.tolerance is None else rules.tolerance
        analyses = {"time": analyze(self.pairs, tolerance, rules=rules.sharing)}
        if rules.tolerance is None:
            analyses["time"] = replace(analyses["time"], decided=True)
        if rules.promise is not None:
            analyses["promise"] = analyze_promise(self.pairs, rules.promise, rules=rules.sharing)
        if KEPT in self.specs:
            analyses["kept time"] = analyze(self.kept_pairs, tolerance)
        for name, pairs in (("start", self.pairs), ("kept start", self.kept_pairs)):
            if rules.start is not None and pairs and all(pair.start is not None for pair in pairs):
                analyses[name] = analyze_start(pairs, rules.start)
        self._analyses = analyses

    def measure_pair(self, number: int) -> ProcessPair:
        """One generation of fresh processes, by its number, which is not added to the case's. Raises ``CaseError`` with
        the reason where a process dies (``ArmFailed``), or nothing can be kept."""
        opened: dict[str, list[Any]] = {}

        def open_worker(arm: str) -> Any:
            worker = self.open_remote(self.specs[arm], limits=self.limits, fresh=True)
            opened.setdefault(arm, []).append(worker)
            return worker

        entries = [(self._series.setdefault(arm, Series(case=arm)), arm) for arm in self.specs]
        entries.append((self._series.setdefault(CONTROL, Series(case=CONTROL)), BASELINE))
        Generation(
            number=number,
            entries=entries,
            pace=Pace(
                rounds=ROUNDS,
                most_seconds=MAX_SECONDS,
                warmup_calls=WARMUP_CALLS,
                warmup_seconds=WARMUP_SECONDS,
                clock=self.clock,
            ),
            open_worker=open_worker,
            shuffle=random.Random(f"{self.seed}/{number}"),
            advance=lambda number: None,
        ).run()
        for series, _ in entries:
            if series.error is not None:
                name = self.names.get(series.case, _NAMES[series.case])
                raise ArmFailed(series.case, f"{name}: {series.error}")
        if KEPT in self.specs:
            self.kept_pairs.append(self._summarize(number, opened, KEPT))
        return self._summarize(number, opened, CONTENDER)

    def _list_minima(self, number: int) -> dict[str, Minima]:
        """The fastest call of each block of one generation, by arm."""
        calm_ns = lowest_level(series.list_canary() for series in self._series.values())
        every = {arm: find_minima(series.list_keys(), series.timings, calm_ns) for arm, series in self._series.items()}
        return {arm: {key: block for key, block in minima.items() if key[0] == number} for arm, minima in every.items()}

    def _summarize(self, number: int, opened: Mapping[str, Sequence[Any]], contender: str) -> ProcessPair:
        minima = self._list_minima(number)

        def pair_arms(case: str, base: str) -> PairedBlocks:
            return pair_blocks(minima[case], minima[base])

        def ratios(case: str, base: str) -> Any:
            return pair_arms(case, base).log_ratios.get(number, ())

        pair = process_pair(ratios(contender, BASELINE), ratios(CONTROL, BASELINE))
        if pair is None:
            raise CaseError("none of its blocks can be kept: the machine was suspended in each")
        promised = pair_arms(FP32, contender) if FP32 in self.specs else PairedBlocks(log_ratios={})
        speedup = promised.log_ratios.get(number, ())
        arms = [arm for arm in (BASELINE, contender, FP32) if minima.get(arm)]
        return replace(
            pair,
            speedup=float(np.median(speedup)) if len(speedup) else None,
            unseen=promised.unseen,
            start=_compare_starts(opened, contender),
            seconds=tuple(_find_typical_seconds(minima[arm]) for arm in arms),
        )


_NAMES: Mapping[str, str] = {
    BASELINE: "the baseline's artifact",
    CONTENDER: "the artifact of this run",
    KEPT: "the baseline's artifact under the libraries of this run",
    CONTROL: "the noise check, a second copy of the baseline's artifact",
    FP32: "the fp32 that the speed-up is over",
}


def _find_typical_seconds(minima: Minima) -> float:
    """The median of the fastest calls of blocks."""
    return float(np.median([block.nanoseconds for block in minima.values()])) / 1e9


def _compare_starts(opened: Mapping[str, Sequence[Any]], contender: str) -> float | None:
    """ln of a contender's load and first call over the mean of both copies of the baseline; None where not known."""
    starts = {
        arm: [
            math.log(max(1e-9, worker.facts.load_seconds + worker.facts.first_call_seconds))
            for worker in workers
            if worker.facts is not None
        ]
        for arm, workers in opened.items()
    }
    base, new = starts.get(BASELINE), starts.get(contender)
    return math.fsum(new) / len(new) - math.fsum(base) / len(base) if base and new else None
