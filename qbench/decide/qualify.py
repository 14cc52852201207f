"""Which int8 cases may be shipped: every limit of the suite held against each of them (``limits``); pure.

What ``gate.overrides`` gives for a case takes the place of the values for all, as in the gate. Each case is tested
alone. What is not measured yet has no outcome: before anything is measured this tells which cases are worth
measuring, afterwards which may be shipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from qbench.compare import compare
from qbench.decide import cases, limits
from qbench.decide.limits import CaseRules, LimitCheck
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.suite.gate import GateSpec

if TYPE_CHECKING:
    from qbench.suite.settings import DecideSpec

Checks = Mapping[str, tuple[LimitCheck, ...]]


def qualify(
    records: Sequence[Record],
    *,
    metric: MetricInfo | None,
    gate: GateSpec | None,
    decide: DecideSpec,
    pairs: compare.Pairs = lambda record, fp32: None,
    place: limits.Place | None = None,
) -> Checks:
    """The limits held against each int8 case that is not failed or skipped, by case id.

    ``gate`` None: the suite, which holds the margin, cannot be read. ``pairs`` gives the metric of each example for a
    case and its fp32, ``place`` the file:line of a key of the suite. Records of cases that are built and evaluated, but
    not measured, will do.
    """
    return {
        record.case.id: tuple(_check_case(record, records, metric, CaseRules.of(record, gate, decide, place), pairs))
        for record in records
        if cases.is_contender(record)
    }


def _check_case(
    record: Record, records: Sequence[Record], metric: MetricInfo | None, rules: CaseRules, pairs: compare.Pairs
) -> Iterator[LimitCheck]:
    yield limits.check_int8(record, rules)
    yield limits.check_accuracy(record, compare.like_for_like(record, records), rules, metric, pairs)
    asked = (
        limits.check_size(record, records, rules),
        limits.check_speedup(record, rules),
        limits.check_latency(record, rules),
        limits.check_memory(record, rules),
        limits.check_peak(record, rules),
    )
    yield from (check for check in asked if check is not None)


def may_be_shipped(checks: Sequence[LimitCheck]) -> bool:
    """Whether nothing is known that rules the case out: no limit that it is held against FAILs."""
    return all(check.outcome != "FAIL" for check in checks)


def holds_all(checks: Sequence[LimitCheck]) -> bool:
    """Whether the case is shown to hold every limit."""
    return all(check.outcome == "PASS" for check in checks)


def breaks_ceiling(record: Record, decide: DecideSpec) -> bool:
    """Whether a case, fp32 included, is shown to take longer or hold more memory than ``decide`` allows."""
    rules = CaseRules(decide=decide)
    ceilings = (limits.check_latency(record, rules), limits.check_memory(record, rules))
    return any(check is not None and check.outcome == "FAIL" for check in ceilings)
