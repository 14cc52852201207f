"""The share of an output error that a change takes away."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qbench.explain.trial import compare_errors, signal_to_noise_db, square_errors

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


def test_limits_cover_the_true_share():
    """95 % limits of 200 examples with skewed errors hold the true share in 92 to 98 % of 2,000 draws."""
    random, count, covered, true = np.random.default_rng(0), 2000, 0, 0.3
    for _ in range(count):
        errors = random.gamma(1.0, 1.0, 200)
        share = compare_errors(errors, errors * random.gamma(2.0, (1 - true) / 2.0, 200)).interval()
        covered += share.low <= true <= share.high
    assert 0.92 <= covered / count <= 0.98
