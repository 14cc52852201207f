"""Rules of decide/tie: which differences nobody should ship for."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from made_records import int8

from qbench.decide.accuracy_difference import AccuracyDifferences
from qbench.decide.judged import SuiteRules, judge
from qbench.decide.limits import AccuracyFloor, AccuracyLimit, AccuracyMargin
from qbench.decide.tie import Contest, find_tied
from qbench.record.stored_run import MetricInfo
from qbench.suite.settings import DecideSpec

TOP1, SQNR = MetricInfo(name="top1"), MetricInfo(name="sqnr", percent=False, own_unit="dB")


def contest(objective: Any = None, metric: MetricInfo | None = TOP1, bound: AccuracyLimit | None = None) -> Contest:
    """A contest whose tie is 3 %."""
    differences = AccuracyDifferences(judged=judge([], TOP1, SuiteRules()))
    return Contest(objective=objective, differences=differences, metric=metric, bound=bound, spec=DecideSpec(tie=0.03))


@pytest.mark.parametrize(
    ("low", "value", "tied", "near"),
    [
        (-0.01, 0.0, True, True),
        (-0.01, math.log1p(0.03), True, True),
        (-0.01, 0.031, True, False),
        (math.log1p(0.03), 0.04, True, False),
        (0.0299, 0.04, False, False),
    ],
)
def test_what_is_not_shown_to_be_worse_by_more_than_the_tie_is_tied(
    low: float, value: float, tied: bool, near: bool
) -> None:
    """And is preferred only where its own estimate is within the tie as well."""
    leader, rival = (int8(f"net/static/{name}/t1/b1") for name in ("a", "b"))
    known = {(rival.case.id, leader.case.id): SimpleNamespace(low=low, value=value)}
    objective = SimpleNamespace(compare=lambda record, other: known[record.case.id, other.case.id])
    expected = ((leader, rival) if tied else (leader,), [leader, rival] if near else [leader])
    assert find_tied([leader, rival], contest(objective)) == expected


def test_a_difference_in_accuracy_ties_within_half_the_margin() -> None:
    """In the metric's own scale; nothing ties where there is no metric, or nothing is demanded of it."""
    margin = AccuracyMargin(loss=1.0)
    assert contest(bound=margin).accuracy_tie == pytest.approx(0.005)
    assert contest(bound=margin).name_accuracy_tie() == "half the margin"
    assert contest().accuracy_tie == contest(metric=None, bound=margin).accuracy_tie == 0.0


def test_beside_a_least_score_there_is_a_tie_of_its_own() -> None:
    """Named with its unit where it has one."""
    floor = AccuracyFloor(value=0.9, perfect=1.0)
    plain = MetricInfo(name="cosine", percent=False)
    for metric in (SQNR, plain):
        step = floor.tie(metric)
        assert contest(metric=metric, bound=floor).accuracy_tie == pytest.approx(step / metric.scale)
        assert contest(metric=metric, bound=floor).name_accuracy_tie() == f"a tie of {step:g} {metric.unit}".rstrip()
    assert contest(metric=None, bound=floor).name_accuracy_tie() == "half the margin"
