"""Rules of measure/gain_over_fp32: the race goes on for what the decision would not call shown."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.measure.gain_over_fp32 import find_gain, is_gain_settled
from qbench.measure.paired_difference import SHOWN_ERROR, PairedDifference
from qbench.measure.pairing import BlockMinimum
from qbench.stats import multiple_testing

ENOUGH = 0.03


def difference(value: float, error: float, generations: int = 4) -> PairedDifference:
    """A difference over generations of processes, Student's t."""
    return PairedDifference(value=value, error=error, freedom=generations - 1, generations=generations, coarse=False)


@pytest.mark.parametrize(
    ("value", "error", "tried", "settled"),
    [
        (-0.06, 0.015, 1, True),
        (-0.06, 0.015, 9, False),
        (-0.30, 0.015, 9, True),
        (0.06, 0.015, 9, True),
        (0.0, 0.015, 9, False),
        (0.0, 0.004, 9, True),
    ],
)
def test_a_gain_is_settled_by_the_decisions_own_test(value: float, error: float, tried: int, settled: bool) -> None:
    """6 % with a t of 4 is shown for one variant, and not for the best of nine; slower is slower; and what is known to
    less than the tie either way is no gain to go on for."""
    assert is_gain_settled(difference(value, error), ENOUGH, tried) == settled


@given(
    value=st.floats(-0.3, 0.0),
    error=st.floats(0.001, 0.05),
    generations=st.integers(3, 10),
    others=st.lists(st.floats(0.0, 1.0), max_size=12),
)
@settings(deadline=None, max_examples=100)
def test_what_ends_a_race_as_shown_the_decision_takes_for_shown(
    value: float, error: float, generations: int, others: list[float]
) -> None:
    """Whatever the p-values of the others: Holm's is at most Bonferroni's."""
    gain = difference(value, error, generations)
    shown = gain.p_not_below(0.0) <= SHOWN_ERROR / (1 + len(others))
    adjusted = multiple_testing.adjust_by_holm([gain.p_not_below(0.0), *others])
    assert not shown or adjusted[0] <= SHOWN_ERROR


def test_without_a_leader_or_an_fp32_there_is_no_gain() -> None:
    """A race of fp32 alone, or of arms that never met."""
    minima = {
        "a": {(0, 0): BlockMinimum(nanoseconds=1.0)},
        "fp32": {(0, 0): BlockMinimum(nanoseconds=2.0)},
        "late": {(1, 0): BlockMinimum(nanoseconds=1.0)},
    }
    assert find_gain(None, "fp32", minima) is None
    assert find_gain("a", None, minima) is None
    assert find_gain("fp32", "fp32", minima) is None
    assert find_gain("late", "fp32", minima) is None
    gain = find_gain("a", "fp32", minima)
    assert gain is not None
    assert gain.value == pytest.approx(-math.log(2))
    assert np.isfinite(gain.error)


@pytest.mark.parametrize(
    ("value", "error", "tried", "settled"),
    [
        (-0.0629, 0.02, 1, False),  # t with 3 degrees of freedom: 3.182 at 2.5 %, one side
        (-0.0643, 0.02, 1, True),
        (-0.1160, 0.02, 5, False),  # 5.841 at 0.5 %, for five that were tried
        (-0.1176, 0.02, 5, True),
        (0.0643, 0.02, 9, True),  # slower: of one comparison, however many were tried
        (0.0629, 0.02, 9, False),
        (0.0, 0.0092, 1, True),  # log 1.03 is 3.182 times 0.00929
        (0.0, 0.0094, 1, False),
        (0.0, 0.0050, 5, True),  # and 5.841 times 0.00506
        (0.0, 0.0051, 5, False),
    ],
)
def test_where_a_gain_begins_to_be_settled(value: float, error: float, tried: int, settled: bool) -> None:
    """At Student's t for the number tried on the side of a gain, for one on the side of a loss, and where half the
    width of the limits for that number is within the tie."""
    assert is_gain_settled(difference(value, error), ENOUGH, tried) == settled


def test_a_gain_that_is_known_to_the_tie_exactly_is_settled() -> None:
    """No further generation is run for what is known to what is asked for; for more than that it is."""
    gain = difference(0.0, 0.01)
    half = gain.half_width_seen(1 - 2 * SHOWN_ERROR)
    enough = math.expm1(half)
    assert math.log1p(enough) == half
    assert is_gain_settled(gain, enough, 1)
    assert not is_gain_settled(gain, enough * (1 - 1e-12), 1)
