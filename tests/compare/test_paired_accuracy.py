"""Rules of qbench/compare/paired_accuracy.py: two runs compared on the same examples."""

from __future__ import annotations

import numpy as np
import pytest
from made_records import accuracy, answers, int8

from qbench.compare import compare
from qbench.compare.compare import Delta
from qbench.compare.paired_accuracy import pair_accuracy, two_sided
from qbench.metrics.classes import F1
from qbench.record.example_scores import ExampleScores
from qbench.record.schema import Record
from qbench.stats.interval_type import Interval
from qbench.stats.jackknife import FactScore


def only(old: ExampleScores | None, new: ExampleScores | None, score: object = None) -> Delta:
    """The delta of one case with these examples."""
    deltas = compare.compare([int8()], [int8()])
    return pair_accuracy(deltas, lambda record: old, lambda record: new, score)[0]  # type: ignore[arg-type]


def scores(values: object, first: int = 0, **changes: object) -> ExampleScores:
    """Examples named by whole numbers."""
    array = np.asarray(values)
    array = array if changes.get("facts") else array.astype(float)
    return ExampleScores(values=array, contents=np.arange(first, first + len(array)).astype(np.uint64), **changes)  # type: ignore[arg-type]


def test_flips_between_the_runs_are_the_change() -> None:
    """20 answers turned wrong of 1,000: -2 points, with limits that are narrower than those of two scores."""
    base, contender = int8(accuracy=accuracy()), int8(accuracy=accuracy(harmful=20))
    (plain,) = compare.compare([base], [contender])
    (delta,) = pair_accuracy([plain], answers, answers)
    assert delta.paired == 1000
    assert delta.accuracy is not None
    assert plain.accuracy is not None
    assert delta.accuracy.value == pytest.approx(-0.02)
    assert delta.accuracy.high - delta.accuracy.low < 0.8 * (plain.accuracy.high - plain.accuracy.low)  # type: ignore[operator]
    assert delta.accuracy_p is not None
    assert delta.accuracy_p < 1e-5


def test_the_same_answers_are_no_change() -> None:
    """Whatever the metric is made of."""
    assert only(scores([0, 1, 1]), scores([0, 1, 1])).accuracy_p == 1.0
    assert only(scores([0.1, 0.2, 0.7]), scores([0.1, 0.2, 0.7])).accuracy_p == 1.0
    facts = scores([[0, 0], [1, 0], [1, 1]], facts=True)
    assert only(facts, facts, F1.fact_score).accuracy_p == 1.0


def test_numbers_are_compared_by_their_differences() -> None:
    """A loss that grew by the same on each example is seen, however much examples differ."""
    rng = np.random.default_rng(0)
    base = rng.normal(0, 10, 200)
    delta = only(scores(base), scores(base + 0.1 + rng.normal(0, 0.01, 200)))
    assert delta.accuracy is not None
    assert delta.accuracy.value == pytest.approx(0.1, abs=0.01)
    assert delta.accuracy_p is not None
    assert delta.accuracy_p < 1e-6


def test_numbers_of_few_examples_are_tested_by_their_own_freedom() -> None:
    """One less than there are examples: the p-value and the limits say the same."""
    base = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    delta = only(scores(base), scores(base + np.array([0.1, 0.2, 0.15, 0.12, 0.3])))
    assert delta.accuracy is not None
    assert delta.accuracy_p == two_sided(delta.accuracy, 0.0, 0.95, 4) != two_sided(delta.accuracy, 0.0, 0.95, 5)


def test_a_metric_of_all_examples_is_resampled() -> None:
    """One that no example has alone: both runs on the same draws."""
    rng = np.random.default_rng(0)
    base = rng.normal(0, 1, (100, 2))
    middle = FactScore(of=lambda facts: float(np.median(facts)))
    delta = only(scores(base, facts=True), scores(base + 1, facts=True), middle)
    assert delta.accuracy is not None
    assert delta.accuracy.value == pytest.approx(1.0, abs=1e-6)
    assert delta.accuracy_p == 0.0 or delta.accuracy_p < 1e-3


@pytest.mark.parametrize(("changed", "shown"), [(2, False), (20, True)])
def test_the_p_value_of_a_score_of_all_examples_agrees_with_its_limits(changed: int, shown: bool) -> None:
    """Below 5 % where the 95 % limits leave out 0, above it where they hold it: a change of F1 and its like is shown by
    the same rule as one of the accuracy."""
    labels = np.arange(200) % 2
    old, new = labels.copy(), labels.copy()
    old[:2] = 1 - old[:2]
    new[10 : 10 + changed] = 1 - new[10 : 10 + changed]
    sides = (scores(np.stack([given, labels], axis=1), facts=True) for given in (old, new))
    delta = only(*sides, F1.fact_score)
    assert delta.accuracy is not None
    assert delta.accuracy.low is not None
    assert delta.accuracy.high is not None
    assert (delta.accuracy.low > 0 or delta.accuracy.high < 0) is shown
    assert delta.accuracy_p is not None
    assert (delta.accuracy_p < 0.05) is shown


@pytest.mark.parametrize("freedom", [None, 4])
@pytest.mark.parametrize(("low", "high", "touched"), [(-1.0, 3.0, -1.0), (-1.0, 3.0, 3.0), (0.5, 2.5, 0.5)])
def test_a_value_on_a_limit_has_the_p_value_of_that_limit(
    low: float, high: float, touched: float, freedom: int | None
) -> None:
    """Two-sided, so a value on either end of a 95 % interval has 5 %; the estimate itself has 1."""
    interval = Interval(value=1.0, low=low, high=high)
    assert two_sided(interval, touched, 0.95, freedom) == pytest.approx(0.05)
    assert two_sided(interval, 1.0, 0.95, freedom) == 1.0
    assert two_sided(Interval(value=1.0), 0.0, 0.95) == 1.0


def test_only_shared_examples_are_compared_and_that_is_said() -> None:
    """Half of the examples are others."""
    delta = only(scores([1.0] * 100), scores([1.0] * 50 + [0.0] * 50, first=50))
    assert delta.paired == 50
    assert "accuracy on 50 shared examples (this run 100, other 100)" in delta.notes
    same = only(scores([1.0] * 100), scores([1.0] * 100))
    assert not any("shared examples" in note for note in same.notes)


def test_right_or_wrong_is_tested_by_mcnemar_where_both_sides_are() -> None:
    """5 of 100 that turn right have p = 1 / 32, 5 to wrong the same; beside numbers between 0 and 1 limits decide."""
    wrong, right = scores([0.0] * 5 + [1.0] * 95), scores([1.0] * 100)
    assert only(wrong, right).accuracy_p == only(right, wrong).accuracy_p == pytest.approx(1 / 32)
    for pair in ((scores([0.5] * 5 + [1.0] * 95), right), (right, scores([0.5] * 5 + [1.0] * 95))):
        assert only(*pair).accuracy_p != pytest.approx(1 / 32)


@pytest.mark.parametrize(
    ("old", "new"),
    [(None, scores([1.0])), (scores([1.0]), None), (scores([1.0]), scores([1.0], first=9)), (None, None)],
)
def test_without_shared_examples_it_stays_unpaired(old: ExampleScores | None, new: ExampleScores | None) -> None:
    """Two scores, as of different examples."""
    delta = only(old, new)
    assert delta.paired is None
    assert delta.accuracy_p is None
    assert delta.accuracy is not None


def test_a_case_without_accuracy_is_left_alone() -> None:
    """Nothing is read of it."""
    record = int8(accuracy=None)

    def read(record: Record) -> ExampleScores | None:
        raise AssertionError("read")

    assert pair_accuracy(compare.compare([record], [record]), read, read)[0].accuracy is None


def test_one_shared_example_is_a_pair() -> None:
    """It shows little, and no score of others."""
    delta = only(scores([1.0]), scores([1.0]))
    assert (delta.paired, delta.accuracy_p) == (1, 1.0)
