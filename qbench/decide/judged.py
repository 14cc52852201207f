"""What a decision rests on: the records of a run with their accuracy tests, the suite's rules, and readers of what is
stored beside them; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qbench.compare import calibration_seeds, compare
from qbench.compare.calibration_seeds import SeedSpread
from qbench.decide import cases, qualify
from qbench.decide.limits import AccuracyLimit, LimitCheck, Place, find_accuracy_limit
from qbench.record.schema import CaseKey, Record, read_case_id
from qbench.record.stored_run import MetricInfo
from qbench.stats import thresholds
from qbench.stats.noninferiority import NonInferiority
from qbench.suite.gate import GateSpec, resolve_overrides
from qbench.suite.settings import DecideSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class SuiteRules:
    """What the suite asks for: its limits, its objective, and how precisely it measures (half a width, a share);
    ``place`` gives the file:line of one of its keys, None: not known."""

    gate: GateSpec = field(default_factory=GateSpec)
    decide: DecideSpec = field(default_factory=DecideSpec)
    precision: float = 0.02
    place: Place | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a command of a next step names, as a shell takes it: the ``suite``'s file and the ``run``. ``quick``: the
    run was a quick look."""

    suite: str = "SUITE"
    run: str = "RUN"
    quick: bool = False


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The records of a run with each int8 case's limits, and its spread over calibration seeds (where there are
    several).

    ``missing``: planned cases without a record. ``rules`` None: this qbench cannot read the run's suite. ``samples``
    gives the timing arrays of a case, empty where none are stored (raises ``QbenchError`` for a damaged file),
    ``values`` the metric of each example, None where no predictions are stored.
    """

    records: Sequence[Record]
    metric: MetricInfo | None
    rules: SuiteRules | None
    checks: qualify.Checks = field(default_factory=dict)
    seed_spreads: Mapping[str, SeedSpread] = field(default_factory=dict)
    missing: tuple[CaseKey, ...] = ()
    source: Source = field(default_factory=Source)
    samples: Callable[[Record], Arrays] = lambda record: {}
    values: Callable[[Record, Record | None], NDArray[Any] | None] = lambda record, fp32: None

    @property
    def bound(self) -> AccuracyLimit | None:
        """What the suite demands of accuracy for all cases; None where that cannot be read."""
        return None if self.rules is None else find_accuracy_limit(self.rules.gate.accuracy)

    def bound_of(self, record: Record) -> AccuracyLimit | None:
        """What it demands of a case: what ``gate.overrides`` gives for it, else that for all."""
        return _find_bound(self.rules, record)

    def bounds_of(self, records: Iterable[Record]) -> set[AccuracyLimit]:
        """What it demands of several cases; fp32, which is held to nothing, is left out."""
        bounds = {self.bound_of(record) for record in records if cases.is_contender(record)}
        return {bound for bound in bounds if bound is not None}

    @property
    def decide(self) -> DecideSpec:
        """What is minimized, and what decides among the tied."""
        return DecideSpec() if self.rules is None else self.rules.decide

    def test_of(self, record: Record) -> NonInferiority | None:
        """The accuracy test of a case; None where there is none to make."""
        return next((check.test for check in self.checks_of(record) if check.test is not None), None)

    def outcome(self, record: Record) -> thresholds.Outcome | None:
        """PASS, FAIL or INCONCLUSIVE of the case's accuracy; None where it was not tested."""
        test = self.test_of(record)
        return None if test is None else test.outcome

    def checks_of(self, record: Record) -> tuple[LimitCheck, ...]:
        """The limits held against a case; none for fp32 and for what was not measured."""
        return self.checks.get(record.case.id, ())


def judge(
    records: Sequence[Record],
    metric: MetricInfo | None,
    rules: SuiteRules | None,
    pairs: compare.Pairs = lambda record, fp32: None,
    *,
    planned: Iterable[str] = (),
    source: Source | None = None,
    samples: Callable[[Record], Arrays] = lambda record: {},
    values: Callable[[Record, Record | None], NDArray[Any] | None] = lambda record, fp32: None,
) -> Judged:
    """The records with the limits and the seed spread of each int8 case; ``pairs`` gives the metric
    of each example for a case and its fp32, ``planned`` the ids of all cases that the run was to have, ``source`` what
    it is called."""
    checks = qualify.qualify(
        records,
        metric=metric,
        gate=None if rules is None else rules.gate,
        decide=DecideSpec() if rules is None else rules.decide,
        pairs=pairs,
        place=None if rules is None else rules.place,
    )
    spreads: dict[str, SeedSpread] = {}
    for record in records:
        if metric is not None and cases.is_contender(record):
            fp32 = compare.like_for_like(record, records)
            bound = _find_bound(rules, record)
            margin = None if bound is None else bound.loss
            spread = calibration_seeds.measure_spread(record, fp32, metric, margin, pairs)
            spreads |= {} if spread is None else {record.case.id: spread}
    return Judged(
        records=records,
        metric=metric,
        rules=rules,
        checks=checks,
        seed_spreads=spreads,
        missing=find_missing(planned, records),
        source=source or Source(),
        samples=samples,
        values=values,
    )


def _find_bound(rules: SuiteRules | None, record: Record) -> AccuracyLimit | None:
    return None if rules is None else find_accuracy_limit(resolve_overrides(rules.gate, record.case)[0].accuracy)


def find_missing(planned: Iterable[str], records: Sequence[Record]) -> tuple[CaseKey, ...]:
    """The planned cases that have no record, as a killed run or a damaged file of records leaves them."""
    recorded = {record.case.id for record in records}
    keys = (read_case_id(case) for case in planned if case not in recorded)
    return tuple(key for key in keys if key is not None)
