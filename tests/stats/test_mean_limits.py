"""Limits on the mean of values of unknown shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.stats import intervals
from qbench.stats.mean_limits import WeightedMean

VALUES = st.lists(st.floats(-100, 100), min_size=2, max_size=60)


@pytest.mark.parametrize(("successes", "n"), [(1, 20), (3, 50), (10, 100), (45, 50)])
def test_of_zeros_and_ones_it_is_clopper_pearson(successes: int, n: int) -> None:
    """Values that are 0 or 1, and known to be: the exact limits of a share, to 4 % of the interval's width."""
    limits = WeightedMean.of([1.0] * successes + [0.0] * (n - successes), 0.0, 1.0).interval(0.95)
    exact = intervals.clopper_pearson(successes, n, 0.95)
    assert limits.low == pytest.approx(exact.low, abs=0.002)
    assert limits.high == pytest.approx(exact.high, abs=0.002)


def test_the_saddlepoint_agrees_with_draws() -> None:
    """The share of 100,000 drawn weighted means that lie below a threshold, of ten skewed values and an unseen one."""
    rng = np.random.default_rng(0)
    sample = WeightedMean.of(rng.lognormal(0, 1.5, 10), -1.0, 20.0)
    drawn = rng.exponential(size=(100_000, 11))
    for threshold in (0.5, 1.0, 2.0):
        above = (drawn @ (np.append(sample.values, 20.0) - threshold) >= 0).mean()
        assert sample.p_below(threshold) == pytest.approx(above, abs=0.01)


@given(VALUES, st.floats(0.01, 50), st.floats(-50, 50))
def test_limits_follow_scale_and_shift(values: list[float], scale: float, shift: float) -> None:
    """Limits lie around the mean, and in another unit they are the same."""
    array = np.asarray(values)
    limits = WeightedMean.of(array).interval(0.9)
    moved = WeightedMean.of(array * scale + shift).interval(0.9)
    if np.ptp(array) < 1e-3:
        return
    assert limits.low is not None
    assert limits.high is not None
    assert limits.low <= limits.value <= limits.high
    size = np.ptp(array) * scale
    assert moved.low == pytest.approx(limits.low * scale + shift, abs=1e-3 * size)
    assert moved.high == pytest.approx(limits.high * scale + shift, abs=1e-3 * size)


@pytest.mark.parametrize("size", [5e-324, 2.4e-207, 1e-150, 1e150])
def test_values_whose_squares_no_float_holds_are_no_error(size: float) -> None:
    """Either they count as equal, or they have the limits of the same values in another unit; p-values stay."""
    array = np.asarray([0.0, 1.0, 1.0, 3.0])
    limits, expected = WeightedMean.of(array * size).interval(0.9), WeightedMean.of(array).interval(0.9)
    assert limits.low is None or limits.low == pytest.approx(expected.low * size, rel=1e-4)
    assert limits.high is None or limits.high == pytest.approx(expected.high * size, rel=1e-4)
    if size > 1e-200:
        p = WeightedMean.of(array).p_below(2.0)
        assert WeightedMean.of(array * size).p_below(2 * size) == pytest.approx(p, rel=1e-6)


@given(VALUES, st.integers(0, 59), st.floats(0, 10))
def test_a_higher_value_never_lowers_a_limit(values: list[float], place: int, by: float) -> None:
    """Raising one value, what one more may be held fixed, raises both limits or leaves them."""
    array = np.asarray(values)
    higher = array.copy()
    higher[place % len(array)] += by
    before, after = (WeightedMean.of(sample, -200.0, 200.0).interval(0.9) for sample in (array, higher))
    assert before.low is not None
    assert after.low is not None
    assert after.low >= before.low - 1e-3
    assert before.high is not None
    assert after.high is not None
    assert after.high >= before.high - 1e-3


@pytest.mark.parametrize("level", [0.5, 0.9, 0.9999])
def test_p_values_are_those_of_the_limits(level: float) -> None:
    """At the limits of a two-sided interval each one-sided p-value is half of what the interval leaves out, also far
    out, of values that are skewed to either side."""
    for side in (1, -1):
        sample = WeightedMean.of(side * np.random.default_rng(1).exponential(size=80))
        turned = WeightedMean.of(-sample.values)
        limits = sample.interval(level)
        assert limits.low is not None
        assert limits.high is not None
        for p_value in (turned.p_below(-limits.low), sample.p_below(limits.high)):
            assert p_value == pytest.approx((1 - level) / 2, rel=1e-2)


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([0.0, 1.0, 2.0, 3.0, 10.0, 20.0, 30.0, 50.0], (-6.0, 130.0)),
        ([0.0] * 3 + [5.0, 9.0] + [10.0] * 4, (-10.0, 10.0)),
        ([1.0, 2.0, 4.0], (-5.0, 10.0)),
        ([7.0], (7.0, 7.0)),
    ],
)
def test_what_one_more_may_be_is_read_off_the_tail(values: list[float], ends: tuple[float, float]) -> None:
    """As far again twice as the last lies from the fourth, or from the other end where there are fewer; what is known
    of it is no narrower than what was seen."""
    sample = WeightedMean.of(values)
    assert (sample.lowest, sample.highest) == ends
    known = WeightedMean.of(values, 5.0, 6.0)
    assert (known.lowest, known.highest) == (min(5.0, min(values)), max(6.0, max(values)))


def test_the_chance_has_no_step_where_the_mean_of_all_is_the_threshold() -> None:
    """There the formula divides 0 by 0 and its limit is taken: as beside it, to a millionth for a ten-thousandth."""
    values = [0.0, 1.0, 2.0, 9.0]
    sample, middle = WeightedMean.of(values, 0.0, 30.0), (sum(values) + 30) / 5
    below, at, above = (sample.p_below(middle + by) for by in (-1e-2, 0.0, 1e-2))
    assert at == pytest.approx((below + above) / 2, abs=1e-5)
    assert below > at > above or below < at < above


def test_equal_values_have_limits_only_where_another_is_possible() -> None:
    """Nothing is known of the spread of equal values, unless by how much one more may differ."""
    limits = WeightedMean.of([1.0] * 50).interval(0.95)
    assert (limits.low, limits.high) == (None, None)
    limits = WeightedMean.of([1.0] * 50, 0.0, 1.0).interval(0.95)
    assert limits.low == pytest.approx(0.025 ** (1 / 50), abs=0.001)


@pytest.mark.parametrize("tail", [1.0, 1.5])
def test_skewed_losses_are_covered(tail: float) -> None:
    """The upper limit of 100 lognormal gains lies below the true mean in at most 5 % (600 samples, three standard
    deviations allowed); Student's t lies below in 10 to 15 %."""
    rng = np.random.default_rng(2)
    true = np.exp(tail**2 / 2)
    samples = rng.lognormal(0, tail, (600, 100))
    missed = np.mean([WeightedMean.of(sample).p_below(true) < 0.05 for sample in samples])
    by_t = np.mean([(intervals.t_interval(sample, 0.9).high or 0.0) < true for sample in samples])
    assert missed <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)
    assert by_t > missed
