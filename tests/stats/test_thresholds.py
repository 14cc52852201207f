"""An interval beside a threshold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from qbench.stats import thresholds
from qbench.stats.interval_type import Interval


def test_decide_wants_the_whole_interval_on_one_side() -> None:
    """Touching the threshold decides nothing, nor does an estimate without limits."""
    inside = Interval(value=1.0, low=0.9, high=1.1)
    assert thresholds.decide(inside, 0.8, wanted="above") == "PASS"
    assert thresholds.decide(inside, 1.2, wanted="above") == "FAIL"
    assert thresholds.decide(inside, 1.2, wanted="below") == "PASS"
    assert thresholds.decide(inside, 0.8, wanted="below") == "FAIL"
    for touched in (0.9, 1.1):
        assert thresholds.decide(inside, touched, wanted="above") == "INCONCLUSIVE"
        assert thresholds.decide(inside, touched, wanted="below") == "INCONCLUSIVE"
    for half in (Interval(value=5.0, low=4.0), Interval(value=5.0, high=6.0)):
        assert thresholds.decide(half, 1.0, wanted="above") == "INCONCLUSIVE"
    assert thresholds.decide(Interval(value=5.0), 1.0, wanted="above") == "INCONCLUSIVE"


@given(st.floats(0.01, 5), st.floats(0.01, 5), st.sampled_from([None, 1, 2, 10]))
def test_p_beyond_is_alpha_where_the_limit_touches(value: float, reach: float, degrees_of_freedom: int | None) -> None:
    """A threshold exactly at the facing limit has p = 2.5 % for a 95 % interval, whatever its law."""
    interval = Interval(value=value, low=value - reach, high=value + reach)
    above = thresholds.p_value_beyond(
        interval, value - reach, side="above", level=0.95, degrees_of_freedom=degrees_of_freedom
    )
    below = thresholds.p_value_beyond(
        interval, value + reach, side="below", level=0.95, degrees_of_freedom=degrees_of_freedom
    )
    assert above == pytest.approx(0.025)
    assert below == pytest.approx(0.025)


@pytest.mark.parametrize(("value", "above", "below"), [(1.1, 0.0, 1.0), (1.0, 1.0, 1.0), (0.9, 1.0, 0.0)])
def test_limits_that_are_the_estimate_itself_leave_no_doubt(value: float, above: float, below: float) -> None:
    """On either side of the threshold; at it, nothing is beyond it. Without a limit there is no p-value."""
    exact = Interval(value=value, low=value, high=value)
    assert thresholds.p_value_beyond(exact, 1.0, side="above", level=0.95) == above
    assert thresholds.p_value_beyond(exact, 1.0, side="below", level=0.95) == below
    assert thresholds.p_value_beyond(Interval(value=value, high=3.0), 1.0, side="above", level=0.95) == 1.0
    assert thresholds.p_value_beyond(Interval(value=value, low=0.0), 1.0, side="below", level=0.95) == 1.0


@pytest.mark.parametrize(
    ("value", "most", "outcome"), [(1.0, 1.0, "PASS"), (1.36, 1 + 0.36, "PASS"), (1.0001, 1.0, "FAIL"), (0, 0, "PASS")]
)
def test_a_number_may_be_the_most_but_for_its_last_digit(value: float, most: float, outcome: str) -> None:
    """A sum of floats is rarely the number that a person writes."""
    assert thresholds.decide_number(value, most) == outcome
    assert thresholds.decide_number(most + (value - most) * 1e-14, most) == "PASS"


def test_a_test_that_decides_four_times_in_five_lies_so_far_out() -> None:
    """Its own 5 % on one side, and the 20 % in which it does not decide."""
    assert pytest.approx(stats.norm.ppf(0.95) + stats.norm.ppf(0.8), abs=1e-3) == thresholds.DECIDING_Z


def test_half_way_to_a_limit_is_half_as_many_errors() -> None:
    """By Student's t of those degrees, or the normal distribution."""
    interval = Interval(value=1.0, low=0.0, high=2.0)
    for degrees, law in ((4, stats.t(4)), (None, stats.norm)):
        p_value = thresholds.p_value_beyond(interval, 0.5, side="above", level=0.95, degrees_of_freedom=degrees)
        assert p_value == pytest.approx(law.cdf(-law.ppf(0.975) / 2))
