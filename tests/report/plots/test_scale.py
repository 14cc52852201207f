"""Rules of qbench/report/plots/scale.py: where an axis ends, its ticks, and what lies beyond."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qbench.report.plots import scale
from qbench.report.plots.scale import from_zero, linear, logarithmic

NUMBERS = st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20)
RATIOS = st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=20)


@given(NUMBERS, NUMBERS, st.lists(st.floats(-100, 100), max_size=3))
@example([0.0], [5e-324], [])
@example([1e4], [1e4 + 2e-12], [])
def test_what_must_be_seen_is_on_the_axis(values: list[float], ends: list[float], must: list[float]) -> None:
    """The reference, the limit and the named cases are never off the scale; ticks lie inside, in order."""
    scale = linear(values, ends, must)
    assert all(scale.side_of(value) == 0 for value in must)
    assert list(scale.ticks) == sorted(set(scale.ticks))
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks)
    assert all(scale.low <= scale.clip(value) <= scale.high for value in (*values, *ends))


@given(RATIOS, RATIOS)
def test_a_logarithmic_axis_has_few_ticks_inside_it(values: list[float], ends: list[float]) -> None:
    """At most as many as there is room for, whatever the range; 1 is on it where it must be."""
    scale = logarithmic(values, ends, [1.0])
    assert len(scale.ticks) <= 6
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks)
    assert 0 <= scale.fraction(1.0) <= 1
    assert scale.side_of(1.0) == 0


def test_an_outlier_does_not_press_the_rest_together() -> None:
    """One value a hundred times as far as the others is drawn at the edge."""
    scale = linear([-0.4, -0.2, 0.0, 0.1, 0.2, -60.0], [], [0.0, -1.0])
    assert scale.side_of(-60.0) == -1
    assert scale.side_of(-0.4) == 0
    assert scale.low < scale.clip(-60.0) < -1.0


def test_a_wide_interval_is_cut_and_not_the_estimates() -> None:
    """Limits that reach far beyond all estimates end at the edge."""
    scale = linear([0.0, 0.1, 0.2, 0.3], [-0.1, 0.4, -0.2, 0.5, -0.1, 0.4, -300.0, 300.0], [0.0])
    assert scale.side_of(300.0) == 1
    assert scale.side_of(0.5) == 0


def test_ticks_have_as_many_decimals_and_a_true_minus() -> None:
    """As many after the point as the step has."""
    scale = linear([-0.6, 0.6], [], [])
    assert [scale.words(tick) for tick in scale.ticks][:2] == ["\N{MINUS SIGN}0.50", "\N{MINUS SIGN}0.25"]
    assert from_zero([3.0]).ticks[0] == 0
    assert from_zero([5e-324]).ticks == from_zero([1.0]).ticks  # too little for steps of its own


def test_an_axis_is_fitted_to_what_it_is_for() -> None:
    """What would press the values together is left to the edge, the nearer reference stays; of two values alone there
    is nothing to press together."""
    values = [0.20, 0.22, 0.24, 0.28]
    axis = scale.fit(scale.logarithmic, values, [], [], [0.35, 1.0, 2.5], share=0.5)
    assert axis.side_of(0.35) == 0
    assert axis.side_of(1.0) == axis.side_of(2.5) == 1
    assert scale.fit(scale.logarithmic, values, [], [], [0.35, 1.0], share=0.1).side_of(1.0) == 0
    assert scale.fit(scale.logarithmic, values[:2], [], [], [1.0], share=0.5).side_of(1.0) == 0


def test_an_axis_has_a_little_room_beyond_its_values() -> None:
    """The ends of an axis are on it; a value beyond is drawn just inside."""
    axis = linear([0.0, 1.0], [], [])
    assert (axis.low, axis.high) == pytest.approx((-0.06, 1.06))
    assert (axis.side_of(axis.low), axis.side_of(axis.high)) == (0, 0)
    assert (axis.side_of(axis.low - 0.01), axis.side_of(axis.high + 0.01)) == (-1, 1)
    assert (axis.clip(-5.0), axis.clip(5.0)) == pytest.approx((axis.at(0.015), axis.at(0.985)))
    assert axis.clip(1.05) == 1.05
    log = logarithmic([1.0, 10.0], [], [])
    assert (log.low, log.high) == pytest.approx((10**-0.07, 10**1.07))
    narrow = logarithmic([1.0, 1.0], [], [])
    assert (narrow.low, narrow.high) == pytest.approx((math.exp(-0.03), math.exp(0.03)))


def test_of_four_values_none_is_far_from_the_others() -> None:
    """Of five one may be."""
    assert linear([0.0, 1.0, 2.0, 100.0], [], []).side_of(100.0) == 0
    assert linear([0.0, 1.0, 1.5, 2.0, 100.0], [], []).side_of(100.0) == 1


def test_limits_reach_as_far_beyond_the_values_as_most_do() -> None:
    """Six tenths of what the values span, or as far as two thirds of the limits reach."""
    values = [0.0, 1.0]
    assert linear(values, [1.59, 1.0, 1.0, 1.0], []).side_of(1.59) == 0
    assert linear(values, [1.61, 1.0, 1.0, 1.0], []).side_of(1.61) == 1
    assert linear(values, [5.0, 5.0, 1.0, 1.0], []).side_of(5.0) == 0


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1.0, 1.1], (1.0, 1.05, 1.1)),
        ([1.0, 4.0], (1.0, 1.5, 2.0, 3.0)),
        ([1.0, 9.0], (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)),
        ([1.0, 60.0], (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)),
        ([1.0, 1e5], (1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0)),
        ([1.0, 1e12], (1.0, 1e3, 1e6, 1e9, 1e12)),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_the_densest_that_fit(values: list[float], ticks: tuple[float, ...]) -> None:
    """Numbers that a reader knows, then powers of ten, of which some are left out."""
    assert logarithmic(values, [], []).ticks == pytest.approx(ticks)
