"""Tests that share one error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from qbench.stats import multiple_testing


def test_samples_that_let_a_fail_stand_among_many_rules() -> None:
    """Three times the z takes nine times the samples; with so many, 5 % / rules are met four times in five."""
    z = scipy_stats.norm.isf(0.05 / 10) + 0.842
    assert multiple_testing.estimate_sample_factor(float(scipy_stats.norm.sf(z / 3)), 10) == pytest.approx(9, rel=1e-3)
    assert multiple_testing.estimate_sample_factor(1e-12, 10) == 1.0
    assert multiple_testing.estimate_sample_factor(0.6, 10) == math.inf
    assert multiple_testing.estimate_sample_factor(0.5, 10) == math.inf
    assert multiple_testing.estimate_sample_factor(0.0, 10) == 1.0


@pytest.mark.parametrize(("level", "p_value", "scaled"), [(0.9, 0.05, 0.05), (0.95, 0.025, 0.05), (0.95, 0.6, 1.0)])
def test_a_p_value_is_that_of_a_test_at_five_percent(level: float, p_value: float, scaled: float) -> None:
    """What is left out on one side of the interval becomes 5 %, and nothing more than 1."""
    assert multiple_testing.scale_p_value(p_value, level) == pytest.approx(scaled)


def test_holm_adjusts_in_the_given_order() -> None:
    """The smallest of three is multiplied by three, the next by two, and no adjusted value falls below an earlier."""
    assert multiple_testing.adjust_by_holm([0.04, 0.01, 0.03]) == pytest.approx((0.06, 0.03, 0.06))
    assert multiple_testing.adjust_by_holm([]) == ()
    p_values = np.random.default_rng(3).random(50) ** 3
    by_definition = [
        max(min(1.0, p * int((p_values >= p).sum())) for p in p_values[p_values <= limit]) for limit in p_values
    ]
    assert multiple_testing.adjust_by_holm(p_values.tolist()) == pytest.approx(by_definition)
