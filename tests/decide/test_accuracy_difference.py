"""Rules of decide/accuracy_difference: two variants on the same examples, else their stored scores."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_records import accuracy, fp32, int8

from qbench.decide.accuracy_difference import AccuracyDifferences, difference_of_values
from qbench.decide.judged import SuiteRules, judge
from qbench.errors import UsageError
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import intervals, noninferiority

QAT = "net/qat/onednn/t1/b1"


def right(wrong: range, n: int = 1000) -> Any:
    """Which of n examples are right."""
    values = np.ones(n)
    values[wrong.start : wrong.stop] = 0
    return values


@pytest.mark.parametrize(("lost", "beyond"), [(0, False), (3, False), (8, True)])
def test_right_or_wrong_is_tested_by_the_flips(lost: int, beyond: bool) -> None:
    """McNemar's mid-p: three of a thousand may be chance, eight are not; no flip is no proof that none ever flips."""
    difference = difference_of_values(right(range(lost)), right(range(0)))
    assert (difference.lost, difference.gained, difference.beyond_chance) == (lost, 0, beyond)
    assert difference.value == -lost / 1000
    assert difference.error == pytest.approx(math.sqrt(lost + 1) / 1000)


def test_other_values_are_tested_by_their_mean() -> None:
    """A loss of each example is beyond chance; equal ones have nothing to tell."""
    base = np.linspace(0, 1, 50)
    worse = difference_of_values(base - 0.1 - 0.01 * np.cos(np.arange(50)), base)
    assert worse.beyond_chance
    assert worse.lost is None
    same = difference_of_values(base, base)
    assert (same.value, same.beyond_chance) == (0.0, False)


def test_rare_large_losses_are_allowed_for_as_the_gate_does() -> None:
    """The limits are those of the accuracy test: a mean that one more large loss would turn is not beyond chance, where
    Student's t, which takes the mean for normal, says that it is."""
    gain = np.full(100, 0.01)
    gain[:30] = 0.02
    gain[0] = -0.5
    by_t = intervals.t_interval(gain[1:], 0.95)
    assert by_t.low is not None
    assert by_t.low > 0
    difference = difference_of_values(gain, np.zeros(100), (None, None))
    tested = noninferiority.assess_examples(gain, np.zeros(100), 0.0, 0.95).delta
    assert tested.low is not None
    assert tested.high is not None
    assert difference.beyond_chance == (tested.low > 0 or tested.high < 0)
    assert difference.error == pytest.approx((tested.high - tested.low) / 2 / 1.96, rel=1e-3)


def test_a_score_that_is_never_below_0_loses_no_more_than_all() -> None:
    """The bounds of one example's value narrow what a further example may lose, and with it the error."""
    own, its = np.linspace(0.01, 0.2, 60) ** 2, np.linspace(0.02, 0.21, 60) ** 2
    known, unknown = (difference_of_values(own, its, bounds) for bounds in ((0.0, None), (None, None)))
    assert known.value == unknown.value
    assert known.error != unknown.error


def differences(records: list[Record], values: Any, sign: bool = True) -> AccuracyDifferences:
    """The differences of a run whose metric is better when higher (or lower)."""
    metric = MetricInfo(name="top1", higher_is_better=sign)
    return AccuracyDifferences(judged=judge(records, metric, SuiteRules(), values=values))


def test_a_metric_that_is_better_lower_is_turned() -> None:
    """Better is positive, whatever the metric."""
    records = [fp32(), int8(), int8(QAT)]
    stored = {records[1].case.id: right(range(100)), QAT: right(range(200))}
    difference = differences(records, lambda record, base: stored[record.case.id], False).compare(
        records[2], records[1]
    )
    assert difference is not None
    assert difference.value == pytest.approx(0.1)


def test_without_predictions_the_scores_are_compared_as_independent() -> None:
    """Each against its own fp32; no flips are known then."""
    better: Any = int8(QAT, accuracy=accuracy(beneficial=25))
    difference = differences([fp32(), int8(), better], lambda record, base: None).compare(better, int8())
    assert difference is not None
    assert (difference.lost, difference.beyond_chance) == (None, True)
    widths = [delta.high - delta.low for delta in (better.accuracy.delta, int8().accuracy.delta)]
    assert difference.error == pytest.approx(math.hypot(*widths) / 2 / 1.96, rel=1e-3)
    assert difference.value == pytest.approx(0.025)
    bare, other = replace(better, accuracy=None), replace(better, accuracy=replace(better.accuracy, metric="map"))
    unlimited = replace(better, accuracy=replace(better.accuracy, delta=None))
    for lacking in (bare, other, unlimited):
        known = differences([fp32(), int8(), lacking], lambda record, base: None)
        assert known.compare(lacking, int8()) is known.compare(int8(), lacking) is None


def test_damaged_predictions_are_named_once() -> None:
    """The scores decide then, and the problem is kept."""

    def read(record: Record, base: Record | None) -> Any:
        raise UsageError(f"{record.case.id}: not a zip")

    known = differences([fp32(), int8(), int8(QAT)], read)
    assert known.compare(int8(QAT), int8()) is not None
    assert set(known.problems) == {QAT, int8().case.id}


@pytest.mark.parametrize("values", [right(range(9), 999), np.ones((1000, 2)), np.full(1000, 1e100), np.ones(0)])
def test_values_that_cannot_be_held_against_each_other_leave_it_to_the_scores(values: Any) -> None:
    """Of other examples, of several for each, beyond what has a square, or none."""
    stored = {int8().case.id: np.ones(len(values)) if not len(values) else np.ones(1000), QAT: values}
    known = differences([fp32(), int8(), int8(QAT)], lambda record, base: stored[record.case.id])
    difference = known.compare(int8(QAT), int8())
    assert difference is not None
    assert difference.lost is None
    assert known.problems == {}


def test_values_just_below_what_has_no_square_are_compared() -> None:
    """As any others."""
    values = np.full(1000, 9.9e99)
    stored = {int8().case.id: values, QAT: values}
    difference = differences([fp32(), int8(), int8(QAT)], lambda record, base: stored[record.case.id]).compare(
        int8(QAT), int8()
    )
    assert difference is not None
    assert (difference.value, difference.error) == (0.0, 1e-12)


def test_what_every_example_loses_alike_is_beyond_chance() -> None:
    """No spread tells how far it may be off."""
    base = np.linspace(0.25, 1, 50)
    worse = difference_of_values(np.round(base * 64) / 64 - 0.5, np.round(base * 64) / 64)
    assert (worse.value, worse.error, worse.beyond_chance) == (-0.5, 1e-12, True)


@pytest.mark.parametrize(("errors", "beyond"), [(1.9, False), (2.0, True), (-2.0, True), (-1.9, False)])
def test_scores_differ_beyond_chance_from_twice_their_error_on(errors: float, beyond: bool) -> None:
    """1.96 of it, either way."""
    plain = int8(QAT)
    assert plain.accuracy is not None
    known = differences([fp32(), int8(), plain], lambda record, base: None)
    same = known.compare(plain, int8())
    assert same is not None
    moved = replace(plain, accuracy=replace(plain.accuracy, value=plain.accuracy.value + errors * same.error))
    difference = differences([fp32(), int8(), moved], lambda record, base: None).compare(moved, int8())
    assert difference is not None
    assert difference.error == same.error
    assert difference.beyond_chance is beyond
