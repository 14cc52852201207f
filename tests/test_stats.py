"""Rules of qbench/stats.py and qbench/decide.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests

from qbench import decide, stats
from qbench.record import Interval

FINITE = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.mark.parametrize(("q", "least"), [(0.5, 6), (0.9, 36), (0.99, 368)])
def test_a_percentile_is_given_only_when_n_supports_it(q: float, least: int) -> None:
    """Two-sided 95 % takes 6 samples for p50, 36 for p90 and 368 for p99; one fewer gives None."""
    assert stats.quantile_interval(np.arange(least - 1.0), q) is None
    found = stats.quantile_interval(np.arange(float(least)), q)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high


@given(st.lists(FINITE, min_size=6, max_size=200), st.sampled_from([0.25, 0.5, 0.75]))
def test_quantile_limits_are_samples_around_the_estimate(samples: list[float], q: float) -> None:
    """The limits are order statistics, so they are samples, and hold the sample quantile between them."""
    found = stats.quantile_interval(samples, q)
    if found is not None:
        assert found.low in samples
        assert found.high in samples
        assert found.low <= found.value <= found.high


def test_quantile_interval_covers_exactly_what_the_binomial_says() -> None:
    """For n = 100 and p50 the ranks are 40 and 61: coverage 95 % at least, and less with either rank moved in."""
    found = stats.quantile_interval(np.arange(1.0, 101.0), 0.5)
    assert found == Interval(value=50.5, low=40.0, high=61.0)
    below = scipy_stats.binom(100, 0.5)
    assert below.cdf(60) - below.cdf(39) >= 0.95
    assert below.cdf(39) <= 0.025 < below.cdf(40)


def test_ratio_over_blocks_is_exp_of_the_median() -> None:
    """The median of log ratios, with order-statistic limits, turned back into a ratio."""
    logs = np.log([0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    found = stats.ratio_over_blocks(logs)
    assert math.isclose(found.value, 1.2)
    assert found.low is not None
    assert math.isclose(found.low, 0.9)
    assert stats.ratio_over_blocks(logs[:5]).low is None


def test_ratio_over_processes_is_the_t_interval_of_logs() -> None:
    """Three process medians give scipy's t interval on logs; one process gives no limits."""
    logs = [0.90, 0.92, 0.94]
    low, high = scipy_stats.t.interval(0.95, 2, loc=0.92, scale=scipy_stats.sem(logs))
    found = stats.ratio_over_processes(logs)
    assert found.low is not None
    assert found.high is not None
    np.testing.assert_allclose([found.value, found.low, found.high], np.exp([0.92, low, high]))
    assert stats.ratio_over_processes([0.9]) == Interval(value=math.exp(0.9))


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_a_proportion_has_width_even_at_its_ends(pair: tuple[int, int]) -> None:
    """Neither 0 of n nor n of n is certain, and the limits stay within 0 and 1."""
    for interval in (stats.proportion(*pair), stats.clopper_pearson(*pair)):
        assert interval.low is not None
        assert interval.high is not None
        assert 0 <= interval.low <= interval.value <= interval.high <= 1
        assert interval.high > interval.low


def test_the_mean_of_equal_values_has_no_limits() -> None:
    """No spread was seen, so none can be stated; zeros and ones are a proportion instead."""
    assert stats.mean([0.1] * 10) == Interval(value=pytest.approx(0.1))
    assert stats.mean([2.5]) == Interval(value=2.5)
    assert stats.mean([1.0] * 10) == stats.proportion(10, 10)


def test_tango_without_flips_has_its_closed_form() -> None:
    """No flips among n examples leaves limits of z^2 / (n + z^2) to either side, never zero width."""
    z2 = scipy_stats.norm.ppf(0.975) ** 2
    none = stats.paired_proportions(0, 0, 100)
    assert none.high == pytest.approx(z2 / (100 + z2), abs=1e-9)
    assert none.low == pytest.approx(-z2 / (100 + z2), abs=1e-9)


@given(st.integers(1, 500), st.data())
def test_paired_proportions_are_antisymmetric_and_never_certain(n: int, data: st.DataObject) -> None:
    """Swapping gains and losses mirrors the interval; it always has width and stays within -1 and 1."""
    gained = data.draw(st.integers(0, n))
    lost = data.draw(st.integers(0, n - gained))
    found, mirrored = stats.paired_proportions(gained, lost, n), stats.paired_proportions(lost, gained, n)
    assert found.low is not None
    assert found.high is not None
    assert mirrored.low is not None
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert found.high > found.low
    assert found.high == pytest.approx(-mirrored.low, abs=1e-8)


@pytest.mark.parametrize(("n", "flips", "delta"), [(450, 0.02, 0.0), (450, 0.04, -0.01), (1000, 0.03, -0.01)])
def test_paired_proportions_cover(n: int, flips: float, delta: float) -> None:
    """The 95 % interval of a paired change covers the truth 93 to 97 % of the time (2,000 simulated runs)."""
    rng = np.random.default_rng(1)
    shares = [(flips + delta) / 2, (flips - delta) / 2, 1 - flips]
    limits = [stats.paired_proportions(int(b), int(c), n) for b, c, _ in rng.multinomial(n, shares, size=2000)]
    covered = sum(i.low <= delta <= i.high for i in limits if i.low is not None and i.high is not None)
    assert 0.93 <= covered / 2000 <= 0.97


def test_paired_delta_uses_the_score_interval_for_correct_or_not() -> None:
    """Equal answers still have limits; other metrics get the t interval of their differences, or none if equal."""
    same = stats.paired_delta([1, 0, 1, 1], [1, 0, 1, 1])
    assert same == stats.paired_proportions(0, 0, 4)
    found = stats.paired_delta([0.5, 0.7, 0.6], [0.4, 0.7, 0.4])
    low, high = scipy_stats.t.interval(0.95, 2, loc=0.1, scale=scipy_stats.sem([0.1, 0.0, 0.2]))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert stats.paired_delta([0.5, 0.7], [0.4, 0.6]).low is None
    with pytest.raises(ValueError, match="same examples"):
        stats.paired_delta([1, 0], [1])


def test_bootstrap_is_seeded_paired_and_honest() -> None:
    """The same seed gives the same limits; a change that no resample moves has none."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=200)
    new = base + 0.1 + rng.normal(scale=0.05, size=200)

    def change(index: np.ndarray) -> float:
        return float(new[index].mean() - base[index].mean())

    found = stats.paired_bootstrap(change, 200, seed=3)
    assert found == stats.paired_bootstrap(change, 200, seed=3)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.1 < found.high
    assert found.high - found.low < 0.03  # unpaired resampling would give about 0.4
    assert stats.paired_bootstrap(lambda index: 0.0, 10) == Interval(value=0.0)


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf]])
def test_estimates_refuse_nothing_and_nonsense(values: list[float]) -> None:
    """No values, NaN and infinity are a caller's error, never an estimate."""
    with pytest.raises(ValueError, match="value"):
        stats.mean(values)


def test_difference_combines_limits_in_quadrature() -> None:
    """MOVER: symmetric intervals combine like standard errors; a side without limits gives none."""
    a, b = Interval(value=3.0, low=2.7, high=3.3), Interval(value=1.0, low=0.6, high=1.4)
    found = stats.difference(a, b)
    assert (found.low, found.high) == (pytest.approx(1.5), pytest.approx(2.5))
    assert stats.difference(a, Interval(value=1.0)).low is None


def test_judge_wants_the_whole_interval_on_one_side() -> None:
    """Touching the threshold decides nothing, nor does an estimate without limits."""
    inside = Interval(value=1.0, low=0.9, high=1.1)
    assert decide.judge(inside, 0.8, wanted="above") == "PASS"
    assert decide.judge(inside, 1.2, wanted="above") == "FAIL"
    assert decide.judge(inside, 1.2, wanted="below") == "PASS"
    assert decide.judge(inside, 0.9, wanted="above") == "INCONCLUSIVE"
    assert decide.judge(Interval(value=5.0), 1.0, wanted="above") == "INCONCLUSIVE"


@pytest.mark.parametrize(("n", "flips", "margin"), [(450, 0.03, 0.01), (1000, 0.03, 0.01), (200, 0.03, 0.02)])
def test_the_accuracy_test_keeps_its_error_rate_at_the_margin(n: int, flips: float, margin: float) -> None:
    """A model that is worse by exactly the margin passes at most 5 % of the time (exact sum over all outcomes)."""
    gains = np.arange(0, 40)[:, None]
    losses = np.arange(0, 60)[None, :]
    chance = scipy_stats.multinomial.pmf(
        np.stack(np.broadcast_arrays(gains, losses, n - gains - losses), axis=-1),
        n, [(flips - margin) / 2, (flips + margin) / 2, 1 - flips],
    )  # fmt: skip
    assert chance.sum() > 0.999
    likely = np.argwhere(chance > 1e-7)
    passed = sum(
        chance[b, c] for b, c in likely
        if decide.non_inferiority_of_counts(int(b), int(c), n, margin).outcome == "PASS"
    )  # fmt: skip
    assert 0.02 < passed <= 0.05


@given(st.integers(20, 2000), st.data(), st.sampled_from([0.005, 0.01, 0.05]))
def test_limits_and_p_value_of_the_accuracy_test_agree(n: int, data: st.DataObject, margin: float) -> None:
    """FAIL exactly where the one-sided p-value is below 5 %, PASS exactly where it is above 95 %."""
    gained, lost = data.draw(st.integers(0, min(20, n // 2))), data.draw(st.integers(0, min(40, n // 2)))
    found = decide.non_inferiority_of_counts(gained, lost, n, margin)
    assert found.p_worse is not None
    if abs(found.p_worse - 0.05) > 1e-6 and abs(found.p_worse - 0.95) > 1e-6:
        expected = "FAIL" if found.p_worse < 0.05 else "PASS" if found.p_worse > 0.95 else "INCONCLUSIVE"
        assert found.outcome == expected
    assert (found.examples is None) or found.outcome == "INCONCLUSIVE"


def test_non_inferiority_of_other_metrics_is_the_t_test_without_skewness() -> None:
    """Per-example values that are no zeros and ones, spread evenly to both sides: scipy's one-sided paired t test."""
    half = np.abs(np.random.default_rng(5).normal(scale=0.1, size=150))
    base = np.random.default_rng(6).normal(size=300)
    new = base - 0.02 + np.concatenate([half, -half])
    found = decide.non_inferiority(new, base, 0.05)
    test = scipy_stats.ttest_1samp(new - base, -0.05, alternative="less")
    assert found.outcome == "PASS"
    assert found.p_worse == pytest.approx(test.pvalue)
    assert (found.delta.low, found.delta.high) == pytest.approx(
        scipy_stats.ttest_1samp(new - base, 0).confidence_interval(0.9)
    )
    assert decide.non_inferiority(base, base, 0.05).outcome == "INCONCLUSIVE"


@given(st.integers(0, 2**32 - 1), st.integers(5, 400), st.floats(0, 3), st.floats(-0.5, 0.5))
def test_limits_and_p_value_agree_however_skewed_the_values(seed: int, n: int, tail: float, loss: float) -> None:
    """FAIL exactly where the one-sided p-value is below 5 %, PASS exactly where it is above 95 %; the estimate lies
    between its limits."""
    values = np.random.RandomState(seed % 2**32).lognormal(0, tail, n)
    found = decide.non_inferiority(loss - values, np.zeros(n), 1.0)
    if found.p_worse is None or min(abs(found.p_worse - 0.05), abs(found.p_worse - 0.95)) < 1e-6:
        return
    expected = "FAIL" if found.p_worse < 0.05 else "PASS" if found.p_worse > 0.95 else "INCONCLUSIVE"
    assert found.outcome == expected
    assert found.delta.low <= found.delta.value <= found.delta.high


def test_examples_to_decide_follow_the_published_formula() -> None:
    """flips x 2.49^2 / (margin - |loss|)^2; exactly on the margin no number decides."""
    assert decide.examples_to_decide(0.03, -0.004, 0.01) == math.ceil(0.03 * 2.487**2 / 0.006**2)
    assert decide.examples_to_decide(0.03, -0.01, 0.01) is None


@given(st.integers(100, 5000), st.integers(0, 20), st.integers(0, 20), st.sampled_from([0.005, 0.01, 0.03]))
def test_the_number_that_would_decide_does(n: int, gained: int, lost: int, margin: float) -> None:
    """With as many examples as an undecided test asks for and the same shares of flips it decides; that is more than it
    has, and without any flip one in a hundred fewer would not do."""
    found = decide.non_inferiority_of_counts(gained, lost, n, margin)
    if found.outcome != "INCONCLUSIVE" or found.examples is None:
        return
    assert found.examples > n
    k = math.ceil(found.examples / n * 1.02)
    whole = decide.non_inferiority_of_counts(gained * k, lost * k, n * k, margin)
    assert whole.outcome == ("PASS" if (gained - lost) / n > -margin else "FAIL")
    if gained == lost == 0:
        least = int(found.examples * 0.99)
        assert decide.non_inferiority_of_counts(0, 0, least, margin).outcome == "INCONCLUSIVE"
        assert decide.non_inferiority_of_counts(0, 0, found.examples + 1, margin).outcome == "PASS"


def test_an_interval_alone_tells_how_many_examples_would_decide() -> None:
    """A bootstrapped score has no values of single examples: their variance is read off the interval and its n."""
    rng = np.random.default_rng(4)
    change = rng.normal(-0.004, 0.2, 1000)
    plain = stats.t_interval(change, 0.95)
    found = decide.from_interval(plain, 0.01, n=1000)
    assert found.outcome == "INCONCLUSIVE"
    assert found.examples == pytest.approx(decide.examples_to_decide(change.var(), plain.value, 0.01), rel=0.01)
    assert decide.from_interval(plain, 0.01).examples is None


def test_samples_that_let_a_fail_stand_among_many_rules() -> None:
    """Twice the z takes four times the samples; with so many, an error of 5 % / rules is met four times in five."""
    z = scipy_stats.norm.isf(0.05 / 10) + 0.842
    assert decide.times_to_decide(float(scipy_stats.norm.sf(z / 2)), 10) == pytest.approx(4, rel=1e-3)
    assert decide.times_to_decide(1e-12, 10) == 1.0
    assert decide.times_to_decide(0.6, 10) == math.inf


def test_mcnemar_midp_matches_the_published_example() -> None:
    """Fagerland et al. (2013), airway reactivity: 1 and 7 discordant pairs give mid-p 0.039; no flips give 1."""
    assert decide.mcnemar_midp(1, 7) == pytest.approx(0.0391, abs=1e-4)
    assert decide.mcnemar_midp(0, 0) == 1.0
    assert decide.mcnemar_midp(3, 3) <= 1.0


def test_holm_adjusts_in_the_given_order() -> None:
    """The smallest of three is multiplied by three, the next by two, and no adjusted value falls below an earlier."""
    assert decide.holm([0.04, 0.01, 0.03]) == pytest.approx((0.06, 0.03, 0.06))
    assert decide.holm([]) == ()
    p_values = np.random.default_rng(3).random(50) ** 3
    assert decide.holm(p_values.tolist()) == pytest.approx(multipletests(p_values, method="holm")[1])


@given(st.floats(0.01, 5), st.floats(0.01, 5), st.sampled_from([None, 1, 2, 10]))
def test_p_beyond_is_alpha_where_the_limit_touches(value: float, reach: float, freedom: int | None) -> None:
    """A threshold exactly at the facing limit has p = 2.5 % for a 95 % interval, whatever its law."""
    interval = Interval(value=value, low=value - reach, high=value + reach)
    above = decide.p_beyond(interval, value - reach, side="above", level=0.95, freedom=freedom)
    below = decide.p_beyond(interval, value + reach, side="below", level=0.95, freedom=freedom)
    assert above == pytest.approx(0.025)
    assert below == pytest.approx(0.025)


def test_independent_values_are_worth_themselves_and_equal_neighbours_are_not() -> None:
    """White noise keeps about its n; a series that repeats each value k times is worth about n / k."""
    rng = np.random.default_rng(0)
    white = rng.standard_normal(2000)
    assert stats.effective_size(white) > 1500
    assert stats.effective_size(np.repeat(white[:200], 10)) == pytest.approx(200, rel=0.35)
    assert stats.effective_size([1.0] * 20) == 20
    assert stats.effective_size([1.0, 2.0]) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=8, max_size=60))
def test_the_effective_size_lies_between_one_and_n(values: list[float]) -> None:
    """Never more than there are, never less than one."""
    found = stats.effective_size(values)
    assert found is not None
    assert 1 <= found <= len(values)
