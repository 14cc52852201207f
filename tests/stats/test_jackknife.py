"""Limits on scores that no example has alone, and on their changes."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.metrics.classes import F1, RECALL
from qbench.metrics.regression import RMSE
from qbench.stats import intervals, jackknife
from qbench.stats.jackknife import FactScore
from qbench.stats.mean_limits import WeightedMean


def answers(n: int, right: float, seed: int, classes: int = 3) -> np.ndarray:
    """Facts of class scores: what n examples were given, and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    given = np.where(rng.random(n) < right, labels, (labels + 1) % classes)
    return np.stack([given, labels], axis=1)


def test_the_shares_of_a_mean_are_its_values() -> None:
    """Of a score that is a mean after all, the limits are those of the mean of the examples' values."""
    values = np.random.default_rng(0).exponential(size=60)
    limits = jackknife.limit_score(FactScore(of=lambda rows: float(rows.mean())), values)
    mean = WeightedMean.of(values).interval(0.95)
    assert (limits.low, limits.high) == (pytest.approx(mean.low, rel=1e-6), pytest.approx(mean.high, rel=1e-6))


def test_of_a_share_that_is_right_it_takes_what_one_more_may_be_for_right_or_wrong() -> None:
    """15 of 20, with limits as of zeros and ones; what occurs often is left out once, so that it takes a score of all,
    one without each of two examples, and one with each of four that were not seen."""
    facts, taken = np.array([[1, 1]] * 15 + [[0, 1]] * 5), []

    def share(rows: np.ndarray) -> float:
        taken.append(len(rows))
        return float((rows[:, 0] == rows[:, 1]).mean())

    limits = jackknife.limit_score(FactScore(of=share), facts)
    exact = WeightedMean.of([1.0] * 15 + [0.0] * 5, 0.0, 1.0).interval(0.95)
    assert (limits.value, limits.low, limits.high) == pytest.approx((0.75, exact.low, exact.high), rel=1e-6)
    assert taken == [20, 19, 19, 21, 21]


def test_a_loss_that_few_examples_do_not_show_is_allowed_for() -> None:
    """Where 100 examples show no change, the limits of a change of macro F1 reach as far as 3 lost examples of the
    rarest class would take it, nearly; those of the examples that fp32 has right reach less far up than down."""
    facts = answers(100, 0.97, 1)
    limits = jackknife.limit_change(F1.fact_score, facts, facts, 0.9)
    assert limits.value == 0
    assert limits.low is not None
    assert limits.high is not None
    worse = facts.copy()
    rarest = np.bincount(facts[:, 1]).argmin()
    worse[np.flatnonzero((facts == rarest).all(axis=1))[:3], 0] = (rarest + 1) % 3
    assert limits.low == pytest.approx(F1.of_facts(worse) - F1.of_facts(facts), abs=0.015)


def test_an_unseen_example_is_one_of_the_rarest_label_given_the_rarest_answer() -> None:
    """Whatever costs macro F1 most: of labels that occur 50, 30 and 20 times, the last given what is answered least; of
    a change, by the one variant or by the other; of one class alone, an answer that is none of its labels."""
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    given = labels.copy()
    given[:25] = 1
    facts = np.stack([given, labels], axis=1)
    pairs = [row.tolist() for row in jackknife._add_unseen(facts[:, None])]
    assert pairs == [[[0, 2]], [[2, 2]], [[2, 1]], [[1, 1]], [[2, 0]], [[0, 0]]]
    change = [row.tolist() for row in jackknife._add_unseen(np.stack([facts, facts], axis=1))]
    assert change[:2] == [[[0, 2], [2, 2]], [[2, 2], [0, 2]]]
    alone = np.zeros((30, 2), dtype=np.int64)
    assert [row.tolist() for row in jackknife._add_unseen(alone[:, None])] == [[[1, 0]], [[0, 0]]]
    low = jackknife.limit_score(F1.fact_score, alone).low
    assert low is not None
    assert low < 1


@pytest.mark.parametrize("right", [0.6, 0.8])
def test_a_large_change_is_seen(right: float) -> None:
    """300 examples of which a further fifth or more is wrong: the whole interval is below 0, and near the normal one of
    macro recall, which is nearly a mean."""
    old, new = answers(300, 0.99, 2), answers(300, right, 2)
    limits = jackknife.limit_change(RECALL.fact_score, new, old)
    assert limits.high is not None
    assert limits.low is not None
    assert limits.high < 0
    plain = intervals.t_interval((new[:, 0] == new[:, 1]).astype(float) - (old[:, 0] == old[:, 1]), 0.95)
    assert plain.low is not None
    assert limits.low == pytest.approx(plain.low, abs=0.03)


def test_many_distinct_examples_are_left_out_in_groups() -> None:
    """3,000 errors that all differ take 1,000 scores, and the limits are those of leaving out each, to a tenth."""
    errors, taken = np.random.default_rng(3).exponential(size=3000), []

    def score(rows: np.ndarray) -> float:
        taken.append(len(rows))
        return RMSE.of_facts(rows)

    limits = jackknife.limit_score(FactScore(of=score), errors)
    assert len(taken) == 1001
    assert limits.low is not None
    assert limits.high is not None
    error = errors.std() / np.sqrt(3000) / (2 * limits.value)  # of a root, by the delta method
    assert limits.high - limits.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_nothing_that_changes_has_no_limits() -> None:
    """Errors that are equal say nothing of how they spread, and neither does a single example."""
    assert jackknife.limit_change(RMSE.fact_score, np.ones(20), np.ones(20)).low is None
    assert jackknife.limit_score(RMSE.fact_score, np.ones(1)).low is None


def test_the_change_of_macro_f1_is_rarely_judged_wrong() -> None:
    """50 examples, of which int8 loses 4 % more: at most 5 % of 150 samples pass a margin of exactly that (three
    standard deviations allowed); percentile limits pass a fifth."""
    rng = np.random.default_rng(4)
    shares = np.array([0.5, 0.3, 0.2])
    expected = population_change(shares)
    passed = 0
    for _ in range(150):
        labels = rng.choice(3, size=50, p=shares)
        lost = rng.random(50) < 0.04
        old, new = (
            np.stack([labels, labels], axis=1),
            np.stack([np.where(lost, (labels + 1) % 3, labels), labels], axis=1),
        )
        low = jackknife.limit_change(F1.fact_score, new, old, 0.9).low
        passed += low is not None and low > expected
    assert passed / 150 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 150)


def population_change(shares: np.ndarray) -> float:
    """Macro F1 minus 1 where 4 % of each class are given the next one."""
    right, answered = 0.96 * shares, 0.96 * shares + 0.04 * np.roll(shares, 1)
    return float(np.mean(2 * right / (shares + answered))) - 1


def test_facts_of_two_variants_get_as_many_rows() -> None:
    """One may have more rows for an example; those that are missing say nothing."""
    for rows in (3, 4, 5):
        few, many = np.ones((2, 1, 4)), np.ones((2, rows, 4))
        for short, long in (jackknife.align_facts(few, many), jackknife.align_facts(many, few)[::-1]):
            assert short.shape == long.shape == (2, rows, 4)
            assert (short[:, 1:] == -1).all()
            assert (short[:, :1] == 1).all()
            assert (long == 1).all()
    flat = np.ones((2, 2))
    assert all(aligned is flat for aligned in jackknife.align_facts(flat, flat))


def test_a_score_that_moves_in_steps_is_limited_by_parts_of_the_examples() -> None:
    """The middle of 101 values, rounded, stays the same without one of them half of the time, so that its limits hold
    the truth no more often; those of 20 parts hold it about nine times in ten."""

    def middle(rows: np.ndarray) -> float:
        return round(20 * float(np.median(rows))) / 20

    def holds(score: FactScore, values: np.ndarray) -> bool:
        limits = jackknife.limit_score(score, values)
        low, high = (limits.value if end is None else end for end in (limits.low, limits.high))
        return low <= 0.0 <= high

    rng = np.random.default_rng(0)
    samples = [rng.normal(size=101) for _ in range(100)]
    by_parts, by_each = (
        sum(holds(FactScore(of=middle, groups=groups), each) for each in samples) for groups in (20, None)
    )
    assert by_parts >= 85
    assert by_each <= 60
    turned = FactScore(of=middle, groups=20).turn(-1.0)
    assert (turned.groups, turned(np.array([1.0, 2.0, 3.0]))) == (20, -2.0)


def test_of_many_labels_the_ten_that_occur_least_are_added() -> None:
    """Each once wrong and once right."""
    labels = np.repeat(np.arange(12), np.arange(1, 13))
    facts = np.stack([labels, labels], axis=1)
    added = [row.tolist()[0] for row in jackknife._add_unseen(facts[:, None])]
    assert [label for _, label in added] == [label for label in range(10) for _ in range(2)]
    assert [given == label for given, label in added] == [False, True] * 10


@pytest.mark.parametrize(
    "rows",
    [np.zeros((4, 1, 2)), np.zeros((4, 1, 3), dtype=int), np.zeros((4, 2), dtype=int), np.zeros((4, 1, 2, 2), int)],
)
def test_nothing_is_added_to_what_is_not_an_answer_and_a_label(rows: np.ndarray) -> None:
    """Floats, other numbers of facts, and tables are other scores' facts."""
    assert list(jackknife._add_unseen(rows)) == []
    assert len(list(jackknife._add_unseen(np.zeros((4, 1, 2), dtype=np.uint8)))) == 2


def test_limits_are_at_95_percent_unless_another_level_is_asked_for() -> None:
    """Of a score, and of a change."""
    new, old = answers(60, 0.7, 5), answers(60, 0.9, 5)
    assert jackknife.limit_score(F1.fact_score, new) == jackknife.limit_score(F1.fact_score, new, 0.95)
    assert jackknife.limit_change(F1.fact_score, new, old) == jackknife.limit_change(F1.fact_score, new, old, 0.95)
    assert jackknife.limit_score(F1.fact_score, new) != jackknife.limit_score(F1.fact_score, new, 0.9)
