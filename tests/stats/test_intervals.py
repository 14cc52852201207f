"""Estimates and their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from qbench.stats import intervals
from qbench.stats.interval_type import Interval
from qbench.stats.mean_limits import WeightedMean

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.mark.parametrize(("q", "least"), [(0.5, 6), (0.9, 36), (0.99, 368)])
def test_a_percentile_is_given_only_when_n_supports_it(q: float, least: int) -> None:
    """Two-sided 95 % takes 6 samples for p50, 36 for p90 and 368 for p99; one fewer gives None."""
    assert intervals.quantile_interval(np.arange(least - 1.0), q) is None
    interval = intervals.quantile_interval(np.arange(float(least)), q)
    assert interval is not None
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low < interval.value < interval.high


@given(st.lists(FINITE, min_size=6, max_size=200), st.sampled_from([0.25, 0.5, 0.75]))
def test_quantile_limits_are_samples_around_the_estimate(samples: list[float], q: float) -> None:
    """The limits are order statistics, so they are samples, and hold the sample quantile between them."""
    interval = intervals.quantile_interval(samples, q)
    if interval is not None:
        assert interval.low in samples
        assert interval.high in samples
        assert interval.low <= interval.value <= interval.high


def test_quantile_interval_covers_exactly_what_the_binomial_says() -> None:
    """For n = 100 and p50 the ranks are 40 and 61: coverage 95 % at least, and less with either rank moved in."""
    interval = intervals.quantile_interval(np.arange(1.0, 101.0), 0.5)
    assert interval == Interval(value=50.5, low=40.0, high=61.0)
    below = scipy_stats.binom(100, 0.5)
    assert below.cdf(60) - below.cdf(39) >= 0.95
    assert below.cdf(39) <= 0.025 < below.cdf(40)


@given(st.lists(FINITE, min_size=1, max_size=400), st.sampled_from([0.1, 0.5, 0.99]), st.sampled_from([0.5, 0.95]))
def test_quantile_limits_are_those_of_scipys_test(samples: list[float], q: float, level: float) -> None:
    """None where it has not both."""
    limits = scipy_stats.quantile_test(samples, q=0.0, p=q).confidence_interval(level)
    interval = intervals.quantile_interval(samples, q, level)
    if interval is None:
        assert math.isnan(limits.low) or math.isnan(limits.high)
    else:
        assert (interval.low, interval.high) == (limits.low, limits.high)


def test_the_limits_of_a_logarithm_become_those_of_the_ratio() -> None:
    """Three medians of processes give scipy's t limits, turned back; without limits there are none."""
    logs = np.array([0.90, 0.92, 0.94])
    low, high = scipy_stats.t.interval(0.95, 2, loc=0.92, scale=scipy_stats.sem(logs))
    interval = intervals.exp(intervals.t_interval(logs, 0.95))
    assert interval.low is not None
    assert interval.high is not None
    np.testing.assert_allclose([interval.value, interval.low, interval.high], np.exp([0.92, low, high]))
    assert intervals.exp(intervals.t_interval(np.array([0.9]), 0.95)) == Interval(value=math.exp(0.9))


PROPORTIONS = st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(PROPORTIONS)
def test_a_proportion_has_width_even_at_its_ends(pair: tuple[int, int]) -> None:
    """Neither 0 of n nor n of n is certain, and the limits stay within 0 and 1."""
    for interval in (intervals.proportion(*pair), intervals.clopper_pearson(*pair)):
        assert interval.low is not None
        assert interval.high is not None
        assert 0 <= interval.low <= interval.value <= interval.high <= 1
        assert interval.high > interval.low


@given(PROPORTIONS, st.sampled_from([0.5, 0.95, 0.999]))
def test_the_limits_of_a_proportion_are_those_of_scipys_test(pair: tuple[int, int], level: float) -> None:
    """Wilson's, and the exact ones."""
    test = scipy_stats.binomtest(*pair)
    for method, interval in (
        ("wilson", intervals.proportion(*pair, level)),
        ("exact", intervals.clopper_pearson(*pair, level)),
    ):
        limits = test.proportion_ci(level, method)
        assert (interval.low, interval.high) == pytest.approx((limits.low, limits.high), abs=1e-11)


@pytest.mark.parametrize(("successes", "n"), [(-1, 5), (6, 5), (0, 0)])
def test_what_is_no_proportion_is_refused(successes: int, n: int) -> None:
    """Neither a negative count, nor more than all, nor a share of nothing."""
    with pytest.raises(ValueError, match=f"{successes} of {n} is not a proportion"):
        intervals.proportion(successes, n)
    assert intervals.proportion(0, 1).value == 0.0


def test_the_mean_of_equal_values_has_no_limits() -> None:
    """No spread was seen, so none can be stated; zeros and ones are a proportion instead."""
    assert intervals.mean([0.1] * 10) == Interval(value=pytest.approx(0.1))
    assert intervals.mean([2.5]) == Interval(value=2.5)
    assert intervals.mean([1.0] * 10) == intervals.proportion(10, 10)


def test_tango_without_flips_has_its_closed_form() -> None:
    """No flips among n examples leaves limits of z^2 / (n + z^2) to either side, never zero width."""
    z2 = scipy_stats.norm.ppf(0.975) ** 2
    none = intervals.paired_proportions(0, 0, 100)
    assert none.high == pytest.approx(z2 / (100 + z2), abs=1e-9)
    assert none.low == pytest.approx(-z2 / (100 + z2), abs=1e-9)


@pytest.mark.parametrize(("gained", "lost", "n"), [(-1, 2, 5), (2, -1, 5), (3, 3, 5), (0, 0, 0), (0, 0, -1)])
def test_counts_that_no_examples_can_give_are_refused(gained: int, lost: int, n: int) -> None:
    """Neither fewer than none, nor more flips than examples, nor a table of nothing."""
    with pytest.raises(ValueError, match=f"{gained} gained and {lost} lost of {n} is no paired table"):
        intervals.paired_proportions(gained, lost, n)
    assert intervals.paired_proportions(2, 3, 5).value == pytest.approx(-0.2)
    assert intervals.paired_proportions(0, 1, 1).low == -1.0


@given(st.integers(1, 500), st.data())
def test_paired_proportions_are_antisymmetric_and_never_certain(n: int, data: st.DataObject) -> None:
    """Swapping gains and losses mirrors the interval; it always has width and stays within -1 and 1."""
    gained = data.draw(st.integers(0, n))
    lost = data.draw(st.integers(0, n - gained))
    interval, mirrored = intervals.paired_proportions(gained, lost, n), intervals.paired_proportions(lost, gained, n)
    assert interval.low is not None
    assert interval.high is not None
    assert mirrored.low is not None
    assert -1 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.high > interval.low
    assert interval.high == pytest.approx(-mirrored.low, abs=1e-8)


@pytest.mark.parametrize(("n", "flips", "delta"), [(450, 0.02, 0.0), (450, 0.04, -0.01), (1000, 0.03, -0.01)])
def test_paired_proportions_cover(n: int, flips: float, delta: float) -> None:
    """The 95 % interval of a paired change covers the truth 93 to 97 % of the time (2,000 simulated runs)."""
    rng = np.random.default_rng(1)
    shares = [(flips + delta) / 2, (flips - delta) / 2, 1 - flips]
    limits = [intervals.paired_proportions(int(b), int(c), n) for b, c, _ in rng.multinomial(n, shares, size=2000)]
    covered = sum(i.low <= delta <= i.high for i in limits if i.low is not None and i.high is not None)
    assert 0.93 <= covered / 2000 <= 0.97


def test_paired_delta_uses_the_score_interval_for_correct_or_not() -> None:
    """Equal answers still have limits; other metrics get those of the mean difference, or none if equal."""
    same = intervals.paired_delta([1, 0, 1, 1], [1, 0, 1, 1])
    assert same == intervals.paired_proportions(0, 0, 4)
    interval = intervals.paired_delta([0.5, 0.7, 0.6], [0.4, 0.7, 0.4])
    assert interval == WeightedMean.of([0.5 - 0.4, 0.0, 0.6 - 0.4]).interval(0.95)
    assert intervals.paired_delta([0.5, 0.7], [0.4, 0.6]).low is None
    with pytest.raises(ValueError, match="same examples"):
        intervals.paired_delta([1, 0], [1])


def test_bootstrap_is_seeded_paired_and_honest() -> None:
    """The same seed gives the same limits; a change that no resample moves has none."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=200)
    new = base + 0.1 + rng.normal(scale=0.05, size=200)

    def change(index: np.ndarray) -> float:
        return float(new[index].mean() - base[index].mean())

    interval = intervals.paired_bootstrap(change, 200, seed=3)
    assert interval == intervals.paired_bootstrap(change, 200, seed=3)
    assert interval.low is not None
    assert interval.high is not None
    plain = intervals.t_interval(new - base, 0.95)  # unpaired, it would be thirty times as wide
    assert interval.low == pytest.approx(plain.low, abs=0.001)
    assert interval.high == pytest.approx(plain.high, abs=0.001)
    assert intervals.paired_bootstrap(lambda index: 0.0, 10) == Interval(value=0.0)


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf]])
def test_estimates_refuse_nothing_and_nonsense(values: list[float]) -> None:
    """No values, NaN and infinity are a caller's error, never an estimate."""
    with pytest.raises(ValueError, match="value"):
        intervals.mean(values)


def test_difference_combines_limits_in_quadrature() -> None:
    """MOVER: symmetric intervals combine like standard errors; a side without limits gives none."""
    a, b = Interval(value=3.0, low=2.7, high=3.3), Interval(value=1.0, low=0.6, high=1.4)
    interval = intervals.difference(a, b)
    assert (interval.low, interval.high) == (pytest.approx(1.5), pytest.approx(2.5))
    assert intervals.difference(a, Interval(value=1.0)).low is None


def test_independent_values_are_worth_themselves_and_equal_neighbours_are_not() -> None:
    """White noise keeps about its n; a series that repeats each value k times is worth about n / k."""
    rng = np.random.default_rng(0)
    white = rng.standard_normal(2000)
    assert intervals.effective_size(white) > 1500
    assert intervals.effective_size(np.repeat(white[:200], 10)) == pytest.approx(200, rel=0.35)
    assert intervals.effective_size([1.0] * 20) == 20
    assert intervals.effective_size([1.0, 2.0]) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=60))
def test_the_effective_size_lies_between_one_and_n(values: list[float]) -> None:
    """Never more than there are, never less than one."""
    interval = intervals.effective_size(values)
    assert interval is not None
    assert 1 <= interval <= len(values)


@pytest.mark.parametrize("correlation", [0.95, 0.5, -0.9])
@pytest.mark.parametrize("n", [8, 9, 30, 31])
def test_what_neighbours_have_in_common_counts_once(n: int, correlation: float) -> None:
    """n / (1 + 2 sum of autocorrelations), to the first pair of lags whose sum is not positive; at most n, at least
    1."""
    rng, values = np.random.default_rng(n), [0.0]
    for step in rng.normal(size=n - 1):
        values.append(correlation * values[-1] + step)
    centred = np.array(values) - np.mean(values)
    of_lags = [float((centred[: n - lag] * centred[lag:]).sum() / (centred**2).sum()) for lag in range(n)]
    total = 0.0
    for lag in range(1, n - 1, 2):
        pair = of_lags[lag] + of_lags[lag + 1]
        if pair <= 0:
            break
        total += pair
    assert intervals.effective_size(values) == pytest.approx(min(n, max(1.0, n / (1 + 2 * total))))
    assert intervals.effective_size(values[:7]) is None


def test_a_series_of_two_levels_is_worth_three_values() -> None:
    """However long it is alike."""
    for count in (40, 200):
        assert intervals.effective_size(np.repeat([0.0, 1.0], count)) == pytest.approx(3.0, abs=0.01)


def test_where_nothing_can_vary_a_change_is_what_it_is_or_impossible() -> None:
    """Without a flip the statistic of no change is 0, that of a change of all or none endless."""
    assert intervals.score_statistic(0, 0, 10, 0.0) == 0.0
    assert intervals.score_statistic(0, 0, 10, 1.0) == -math.inf
    assert intervals.score_statistic(0, 0, 10, -1.0) == math.inf


def test_a_bootstrap_of_what_cannot_be_resampled() -> None:
    """One example tells no spread, none is a caller's error, and neither is a score that is no number a limit."""
    assert intervals.paired_bootstrap(lambda index: 1.0, 1) == Interval(value=1.0)
    with pytest.raises(ValueError, match="no values"):
        intervals.paired_bootstrap(lambda index: 1.0, 0)
    scores = iter([1.0, math.nan, *[2.0] * 2000])
    assert intervals.paired_bootstrap(lambda index: next(scores), 5) == Interval(value=1.0)


def test_the_limits_of_a_bootstrap_hold_its_estimate() -> None:
    """Of a score that every resample lowers, or raises; each of 2,000 is drawn once, from the seed 0 unless another is
    given."""
    calls = []

    def count_distinct(index: np.ndarray) -> float:
        calls.append(len(index))
        return float(len(set(index.tolist())))

    falling = intervals.paired_bootstrap(count_distinct, 20)
    assert (falling.value, falling.high) == (20.0, 20.0)
    assert calls == [20] * 2001
    rising = intervals.paired_bootstrap(lambda index: -count_distinct(index), 20)
    assert (rising.value, rising.low) == (-20.0, -20.0)
    assert falling == intervals.paired_bootstrap(count_distinct, 20, seed=0, level=0.95, resamples=2000)
    draws = np.random.default_rng(0)
    numbers = [len(set(draws.integers(0, 20, size=20).tolist())) for _ in range(2000)]
    assert falling.low == np.quantile(numbers, 0.025)


def test_a_change_that_nothing_shows_is_as_wide_as_so_few_examples_leave_it() -> None:
    """z^2 / (n + z^2) of the examples may lose ``size`` each; limits that reach further stay."""
    z2 = scipy_stats.norm.ppf(0.975) ** 2
    reach = z2 / (50 + z2) * 3
    none = intervals.widen_for_unseen(Interval(value=0.5), 50, 3.0, 0.95)
    assert (none.value, none.low, none.high) == pytest.approx((0.5, 0.5 - reach, 0.5 + reach))
    wide = Interval(value=0.5, low=-9.0, high=0.6)
    assert intervals.widen_for_unseen(wide, 50, 3.0, 0.95) == Interval(value=0.5, low=-9.0, high=none.high)
    wide = Interval(value=0.5, low=0.4, high=9.0)
    assert intervals.widen_for_unseen(wide, 50, 3.0, 0.95) == Interval(value=0.5, low=none.low, high=9.0)


@pytest.mark.parametrize("half", [Interval(value=1.0, low=0.5), Interval(value=1.0, high=1.5)])
def test_a_difference_has_limits_where_all_four_are_known(half: Interval) -> None:
    """A limit that one side has not is none of the difference's."""
    whole = Interval(value=3.0, low=2.5, high=3.5)
    assert intervals.difference(whole, half) == Interval(value=2.0)
    assert intervals.difference(half, whole) == Interval(value=-2.0)
    skewed = intervals.difference(Interval(value=3.0, low=2.0, high=3.5), Interval(value=1.0, low=0.5, high=3.0))
    assert (skewed.value, skewed.low, skewed.high) == pytest.approx((2.0, 2 - 5**0.5, 2 + 0.5**0.5))
