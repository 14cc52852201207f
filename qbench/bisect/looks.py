"""Looks at candidates: each is made ready and tried, then timed beside the good end, or asked for its answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qbench.bisect import judge_time
from qbench.bisect.candidates import Absent, Arm, Candidates
from qbench.bisect.journal import Journal
from qbench.bisect.question import Observation, Question, Stop, Stopped
from qbench.errors import CaseError, CaseSkipped
from qbench.gating.live_case import BASELINE, CONTENDER, ArmFailed, LiveCase, LiveRules
from qbench.measure.group import RemoteWorker
from qbench.measure.worker import WorkerSpec
from qbench.process.child_process import Limits
from qbench.progress.live import Silent
from qbench.record.stored_run import MetricInfo


@dataclass(kw_only=True)
class Looks:
    """Looks at the candidates of a question, each kept in the journal as soon as it is known."""

    journal: Journal
    candidates: Candidates
    limits: Limits
    progress: Silent
    seed: int
    metric: MetricInfo | None = None  # how changes of the score are told
    open_remote: Callable[..., Any] = RemoteWorker
    clock: Callable[[], float] = time.monotonic
    most_seconds: float = float("inf")
    _arms: dict[int, Arm] = field(default_factory=dict)
    _tried: set[int] = field(default_factory=set)
    _started: float | None = None

    @property
    def _question(self) -> Question:
        return self.journal.question

    def is_over(self) -> bool:
        """Whether the time that may be spent is over."""
        if self._started is None:
            self._started = self.clock()
        return self.clock() - self._started >= self.most_seconds

    def look(self, place: int) -> None:
        """One look, or one longer look, at a candidate. Raises ``CaseError`` where the good end fails beside it."""
        started = self.clock()
        good = self._open(0) if place and self._question.on == "latency" else None
        try:
            arm = self._open(place)
            if (same := self._find_same(place, arm)) is not None:
                self._keep(Observation(candidate=place, same=same, digest=arm.digest), started)
                return
            self._try(place, arm)
            if self._question.on in ("accuracy", "bits"):
                self._ask(place, arm, started)
            elif good is not None:
                self._time(place, arm, good)
            else:
                self._keep(Observation(candidate=place, runs=True, digest=arm.digest), started)
        except Absent as error:
            self._stop(place, "absent", error, started)
        except (CaseError, CaseSkipped) as error:
            if isinstance(error, ArmFailed) and error.arm != CONTENDER:
                raise
            self._stop(place, "fails", error, started)

    def _find_same(self, place: int, arm: Arm) -> int | None:
        """The end that runs the very same; None where neither does, as far as is known."""
        ends = {each.candidate for each in self.journal.observations if each.digest == arm.digest} - {place}
        return min(ends & {0, self._question.last}, default=None)

    def _open(self, place: int) -> Arm:
        if place not in self._arms:
            self.progress.advance(f"{self._question.name(place)}: made ready")
            self._arms[place] = self.candidates.open(place)
        return self._arms[place]

    def _try(self, place: int, arm: Arm) -> None:
        """Loads it once, in a fresh process: what cannot be loaded is told from what is slow. One that fails is tried
        again: the machine may have been short of something."""
        if place in self._tried:
            return
        try:
            self._load(arm)
        except CaseError:
            self._load(arm)
        self._tried.add(place)

    def _load(self, arm: Arm) -> None:
        worker = self.open_remote(arm.spec, limits=self.limits, fresh=True)
        try:
            worker.load()
        finally:
            worker.close()

    def _time(self, place: int, arm: Arm, good: Arm) -> None:
        """Process pairs up to the next look; the good end runs beside it, twice."""
        before = [each.pair for each in self.journal.observations if each.candidate == place and each.pair is not None]
        wanted = judge_time.next_look(len(before))
        assert wanted is not None
        live = LiveCase(
            case=self._question.name(place),
            specs={BASELINE: _call(good.spec, BASELINE), CONTENDER: _call(arm.spec, CONTENDER)},
            rules=LiveRules(),
            limits=self.limits,
            seed=self.seed,
            open_remote=self.open_remote,
            clock=self.clock,
            names={BASELINE: self._question.name(0), CONTENDER: self._question.name(place)},
        )
        for number in range(len(before), wanted):
            if self.is_over():
                return
            started = self.clock()
            self.progress.advance(f"{self._question.name(place)}: process pair {number + 1} of {wanted}")
            self._keep(Observation(candidate=place, pair=live.measure_pair(number), digest=arm.digest), started)

    def _ask(self, place: int, arm: Arm, started: float) -> None:
        again = sum(each.candidate == place for each in self.journal.observations)
        file = Path(f"answers-{place}{f'-{again}' if again else ''}.npz")
        arm.predict(self.journal.folder / file)
        self._keep(Observation(candidate=place, answers=file.name, digest=arm.digest), started)

    def _stop(self, place: int, kind: Stop, error: Exception, started: float) -> None:
        self._keep(Observation(candidate=place, stopped=Stopped(kind=kind, reason=str(error))), started)

    def _keep(self, observation: Observation, started: float) -> None:
        self.journal.add(replace(observation, seconds=round(self.clock() - started, 3)))


def _call(spec: WorkerSpec, name: str) -> WorkerSpec:
    return replace(spec, case=name)
