"""The share of an output error that a change takes away."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from qbench.explain.trial import (
    LEAST_EXAMPLES,
    RACE_SPREAD,
    RemovedError,
    SavedTime,
    compare_errors,
    save_time,
    signal_to_noise_db,
    square_errors,
)
from qbench.measure.paired_difference import PairedDifference

ERRORS = arrays(np.float64, 20, elements=st.floats(1e-3, 1e3))


@given(ERRORS)
def test_nothing_and_everything_taken_away(errors):
    """The same errors are a share of 0, none left is 1, and both without doubt."""
    assert compare_errors(errors, errors).share == pytest.approx(0.0)
    gone = compare_errors(errors, np.zeros_like(errors))
    assert (gone.share, gone.error) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-9))


@given(ERRORS, st.floats(1e-3, 1e3))
def test_a_share_does_not_depend_on_the_unit(errors, unit):
    """Outputs that are ten times as large have the same shares, and the same limits."""
    other = errors[::-1].copy()
    plain, scaled = compare_errors(errors, other), compare_errors(unit * errors, unit * other)
    assert scaled.share == pytest.approx(plain.share)
    assert scaled.error == pytest.approx(plain.error, rel=1e-6)


def test_errors_are_squared_distances_by_example():
    """Over all outputs of an example, whatever their shape."""
    fp32 = np.zeros((2, 2, 3), np.float32)
    assert square_errors(fp32 + 2, fp32).tolist() == [24.0, 24.0]
    assert signal_to_noise_db(np.array([1.0]), np.full((1, 10), 1.0)) == pytest.approx(10.0)
    assert signal_to_noise_db(np.array([0.0]), fp32) is None


@pytest.mark.parametrize("other", [np.full(20, np.nan), np.full(20, np.inf)])
def test_outputs_that_are_no_numbers_have_no_share(other):
    """Nor has a case without an error."""
    assert compare_errors(np.ones(20), other) is None
    assert compare_errors(np.zeros(20), np.ones(20)) is None


def test_few_examples_have_no_limits():
    """A share all the same, but nothing is shown."""
    share = compare_errors(np.ones(3), np.zeros(3))
    assert share.interval().low is None
    assert share.p_nothing() == 1.0


def test_eight_examples_have_limits_and_seven_have_none():
    """Fewer say too little of how they spread."""
    few, enough = (RemovedError(share=0.5, error=0.01, n=count) for count in (7, 8))
    assert (few.interval().low, few.interval().high, few.p_nothing()) == (None, None, 1.0)
    assert enough.interval().low is not None
    assert enough.p_nothing() < 0.001


def test_limits_cover_the_true_share():
    """95 % limits of 200 examples with skewed errors hold the true share in 92 to 98 % of 2,000 draws."""
    random, count, covered, true = np.random.default_rng(0), 2000, 0, 0.3
    for _ in range(count):
        errors = random.gamma(1.0, 1.0, 200)
        share = compare_errors(errors, errors * random.gamma(2.0, (1 - true) / 2.0, 200)).interval()
        covered += share.low <= true <= share.high
    assert 0.92 <= covered / count <= 0.98


def test_what_lasts_has_the_error_of_one_race_and_that_between_races():
    """The freedom follows from both; what one race could not see is in the second."""
    race = PairedDifference(
        value=-0.1, error=0.01, freedom=2.0, generations=3, coarse=False, unseen=0.05, seen_freedom=7.0
    )
    saving = save_time(race)
    variance = 0.01**2 + RACE_SPREAD**2
    assert saving.difference is race
    assert saving.lasting.error == pytest.approx(variance**0.5)
    assert saving.lasting.freedom == pytest.approx(2.0 * (variance / 0.01**2) ** 2)
    assert (saving.lasting.unseen, saving.lasting.seen_freedom, saving.lasting.value) == (0.0, None, -0.1)


def test_a_gain_whose_limits_reach_nothing_does_not_last():
    """At the case's own time there is no gain."""
    for high, lasts in ((0.0, False), (-1e-9, True)):
        saving = SavedTime(difference=None, lasting=SimpleNamespace(limits=lambda high=high: (-1.0, high)))
        assert saving.lasts == lasts


@pytest.mark.parametrize(("share", "p_value"), [(0.5, 0.0), (0.0, 1.0), (-0.5, 1.0)])
def test_without_an_error_a_share_is_sure(share, p_value):
    """All examples agree; nothing gone is no gain."""
    assert RemovedError(share=share, error=0.0, n=200).p_nothing() == p_value


def test_limits_and_p_value_are_those_of_student_s_t():
    """With one degree of freedom less than examples; from so many on that are the least."""
    removed = RemovedError(share=0.3, error=0.2, n=LEAST_EXAMPLES)
    freedom = LEAST_EXAMPLES - 1
    low, high = stats.t.interval(0.95, freedom, loc=0.3, scale=0.2)
    shown = removed.interval(0.95)
    assert (shown.low, shown.high) == (pytest.approx(low), pytest.approx(high))
    assert removed.p_nothing() == pytest.approx(stats.t.sf(0.3 / 0.2, freedom))


@pytest.mark.parametrize(("case", "other"), [([1.0, 3.0], [1.0, 1.0]), ([1.0, 2.0, 6.0], [0.0, 2.0, 3.0])])
def test_the_error_of_a_share_is_that_of_a_ratio(case, other):
    """By the residuals, over one less than there are; a single example has none."""
    before, after = np.array(case), np.array(other)
    removed = compare_errors(before, after)
    residuals = (before - after) - removed.share * before
    error = np.sqrt((residuals**2).sum() / (len(case) - 1) / len(case)) / before.mean()
    assert removed.error == pytest.approx(error)
    assert compare_errors(before[:1], after[:1]).error == pytest.approx(0.0)


def test_outputs_without_energy_have_no_ratio_to_noise():
    """Nor have those without noise."""
    assert signal_to_noise_db(np.array([1.0]), np.zeros((1, 4))) is None
