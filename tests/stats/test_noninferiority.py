"""The paired tests of a loss against a margin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from qbench.stats import examples_needed, intervals, noninferiority
from qbench.stats.interval_type import Interval
from qbench.stats.mean_limits import UNSEEN


@pytest.mark.parametrize(
    ("n", "flips", "margin"),
    [(450, 0.03, 0.01), (1000, 0.03, 0.01), (200, 0.03, 0.02), (1000, 0.005, 0.005), (800, 0.00595, 0.0035)],
)
def test_the_accuracy_test_keeps_both_error_rates_at_the_margin(
    n: int, flips: float, margin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is worse by exactly the margin passes at most 5 % of the time, and fails at most 5 % (exact sum over
    all outcomes); with few losses expected, too."""
    gains = np.arange(0, 40)[:, None]
    losses = np.arange(0, 60)[None, :]
    chance = scipy_stats.multinomial.pmf(
        np.stack(np.broadcast_arrays(gains, losses, n - gains - losses), axis=-1),
        n, [(flips - margin) / 2, (flips + margin) / 2, 1 - flips],
    )  # fmt: skip
    assert chance.sum() > 0.999
    monkeypatch.setattr(noninferiority.examples_needed, "for_counts", lambda *counts: n)  # not asked here
    outcomes = {"PASS": 0.0, "FAIL": 0.0, "INCONCLUSIVE": 0.0}
    for gained, lost in np.argwhere(chance > 1e-7):
        test = noninferiority.assess_counts.__wrapped__(int(gained), int(lost), n, margin)
        outcomes[test.outcome] += chance[gained, lost]
    assert 0.02 < outcomes["PASS"] <= 0.05
    assert 0.02 < outcomes["FAIL"] <= 0.05


@given(st.integers(20, 2000), st.data(), st.sampled_from([0.005, 0.01, 0.05]))
def test_limits_and_p_value_of_the_accuracy_test_agree(n: int, data: st.DataObject, margin: float) -> None:
    """FAIL exactly where the one-sided p-value is below 5 %, PASS exactly where it is above 95 %."""
    gained, lost = data.draw(st.integers(0, min(20, n // 2))), data.draw(st.integers(0, min(40, n // 2)))
    assessment = noninferiority.assess_counts(gained, lost, n, margin)
    assert assessment.p_worse is not None
    if abs(assessment.p_worse - 0.05) > 1e-6 and abs(assessment.p_worse - 0.95) > 1e-6:
        expected = "FAIL" if assessment.p_worse < 0.05 else "PASS" if assessment.p_worse > 0.95 else "INCONCLUSIVE"
        assert assessment.outcome == expected
    assert (assessment.examples is None) or assessment.outcome == "INCONCLUSIVE"


@pytest.mark.parametrize("n", [1, 2, 30])
def test_no_limit_is_beyond_what_is_possible(n: int) -> None:
    """Where every example is lost the lower limit is -1, the change itself; where every one is gained the upper is 1;
    the other limit says that not all need be."""
    lost, gained = (noninferiority.assess_counts(*counts, n, 0.01).delta for counts in ((0, n), (n, 0)))
    assert (lost.value, lost.low, gained.value, gained.high) == (-1.0, -1.0, 1.0, 1.0)
    assert lost.high is not None
    assert -1.0 < lost.high <= 1.0
    assert gained.low == pytest.approx(-lost.high, abs=0.5)


def test_values_without_a_tail_are_judged_nearly_as_by_the_t_test() -> None:
    """Per-example values that are no zeros and ones, spread evenly to both sides: limits a little wider than those of
    scipy's t test. Where no value differs there are none."""
    half = np.abs(np.random.default_rng(5).normal(scale=0.1, size=150))
    base = np.random.default_rng(6).normal(size=300)
    new = base - 0.02 + np.concatenate([half, -half])
    assessment = noninferiority.assess_examples(new, base, 0.05)
    assert assessment.outcome == "PASS"
    low, high = scipy_stats.ttest_1samp(new - base, 0).confidence_interval(0.9)
    assert assessment.delta.low is not None
    assert assessment.delta.high is not None
    assert -0.003 < assessment.delta.low - low < 0 < assessment.delta.high - high < 0.003
    assert noninferiority.assess_examples(base, base, 0.05).outcome == "INCONCLUSIVE"


@given(st.integers(0, 2**32 - 1), st.integers(5, 400), st.floats(0, 3), st.floats(-0.5, 0.5))
def test_limits_and_p_value_agree_however_skewed_the_values(seed: int, n: int, tail: float, loss: float) -> None:
    """FAIL exactly where the one-sided p-value is below 5 %, PASS only where the lower limit is above -margin; the
    estimate lies between its limits."""
    values = np.random.RandomState(seed % 2**32).lognormal(0, tail, n)
    assessment = noninferiority.assess_examples(loss - values, np.zeros(n), 1.0)
    delta = assessment.delta
    if assessment.p_worse is None or delta.low is None or delta.high is None:
        return
    assert delta.low <= delta.value <= delta.high
    if abs(assessment.p_worse - 0.05) > 1e-4:
        assert (assessment.outcome == "FAIL") == (assessment.p_worse < 0.05)
    if assessment.outcome == "PASS":
        assert n >= UNSEEN
        assert delta.low > -1.0


def test_too_few_values_for_rare_large_losses_do_not_pass() -> None:
    """1 example in 100 loses 100 times the margin. Of 100 examples a third shows none of these, and the rest of the
    values looks perfect: no PASS, and the reason and the number say why. 300 show them."""
    rng = np.random.default_rng(8)
    margin, few, many = 1.0, 0, 0
    for _ in range(200):
        change = rng.normal(0, 0.01, 400) - 100 * (rng.random(400) < 0.01)
        few += noninferiority.assess_examples(change[:100], np.zeros(100), margin).outcome == "PASS"
        many += noninferiority.assess_examples(change[:300], np.zeros(300), margin).outcome == "PASS"
    assert few == 0
    assert many <= 20  # 5 % of 200, and three standard deviations
    test = noninferiority.assess_examples(rng.normal(0, 0.01, 100), np.zeros(100), margin)
    assert (test.outcome, test.examples) == ("INCONCLUSIVE", UNSEEN)
    assert test.reason == "a large loss of 1 example in 100 goes unseen in 37 % of samples of 100"


def test_a_known_lowest_value_takes_the_place_of_a_number_of_examples() -> None:
    """Where an example can lose 1 at most, 100 examples without a loss leave room for 3 % (z^2 / n): a margin of 5 %
    passes, one of 2 % does not."""
    same, change = np.ones(100), np.random.default_rng(9).normal(0, 1e-4, 100)
    outcomes = [
        noninferiority.assess_examples(same + change, same, margin, bounds=(0.0, 1.0)).outcome
        for margin in (0.05, 0.02)
    ]
    assert outcomes == ["PASS", "INCONCLUSIVE"]
    equal = noninferiority.assess_examples(same * 0.5, same * 0.5, 0.05, bounds=(0.0, 1.0))
    assert equal.outcome == "PASS"


@given(st.integers(100, 5000), st.integers(0, 20), st.integers(0, 20), st.sampled_from([0.005, 0.01, 0.03]))
@settings(max_examples=20, deadline=None)
def test_an_undecided_test_says_how_many_would_decide(n: int, gained: int, lost: int, margin: float) -> None:
    """More than it has; one that is decided says nothing."""
    test = noninferiority.assess_counts(gained, lost, n, margin)
    assert (test.examples is not None) == (test.outcome == "INCONCLUSIVE")
    assert test.examples is None or test.examples > n


def test_an_interval_alone_tells_how_many_examples_would_decide() -> None:
    """A bootstrapped score has no values of single examples: their variance is read off the interval and its n."""
    change = np.random.default_rng(4).normal(-0.004, 0.2, 1000)
    plain = intervals.t_interval(change, 0.95)
    assessment = noninferiority.assess_interval(plain, 0.01, n=1000)
    assert assessment.outcome == "INCONCLUSIVE"
    assert assessment.examples is not None
    assert assessment.examples == pytest.approx(
        examples_needed.for_mean(plain, change.var(), 1000, 0.01, 0.95), rel=0.02
    )
    assert noninferiority.assess_interval(plain, 0.01).examples is None


def test_how_many_examples_decide_follows_the_spread_of_the_change() -> None:
    """Of values that differ much from example to example and change little, few are needed."""
    random = np.random.default_rng(3)
    old = random.normal(0, 10, 400)
    new = old + random.normal(-0.05, 0.4, 400)
    assessment = noninferiority.assess_examples(new, old, 0.07)
    assert assessment.outcome == "INCONCLUSIVE"
    delta = assessment.delta
    assert assessment.examples == examples_needed.for_mean(
        delta, float((new - old).var()), 400, 0.07, noninferiority.LEVEL
    )
    assert assessment.examples < 10_000


@pytest.mark.parametrize(("n", "margin"), [(50, 0.05), (76, 0.01), (450, 0.01), (1000, 0.005)])
def test_the_share_that_agrees_keeps_both_error_rates_at_the_margin(n: int, margin: float) -> None:
    """A variant that agrees on exactly 1 - margin passes at most 5 % of the time and fails at most 5 %, summed over all
    outcomes; the limits hold the truth 90 % of the time or more, on each side 95 %."""
    chance = scipy_stats.binom.pmf(np.arange(n + 1), n, 1 - margin)
    rates = {"PASS": 0.0, "FAIL": 0.0, "INCONCLUSIVE": 0.0}
    above = below = 0.0
    for right in np.flatnonzero(chance > 1e-12):
        test = noninferiority.assess_share(int(right), n, margin)
        rates[test.outcome] += chance[right]
        assert test.delta.low is not None
        assert test.delta.high is not None
        above += chance[right] * (test.delta.low > -margin)
        below += chance[right] * (test.delta.high < -margin)
    assert rates["PASS"] <= 0.05
    assert rates["FAIL"] <= 0.05
    assert max(above, below) <= 0.05


@pytest.mark.parametrize(
    ("gained", "lost", "n"), [(0, 1, 1), (1, 0, 1), (0, 40, 40), (40, 0, 40), (20, 20, 40), (1, 39, 40)]
)
def test_no_limit_of_a_change_is_beyond_all_and_none(gained: int, lost: int, n: int) -> None:
    """A share cannot change by more than 1, also where every example was lost or gained, and the limits are apart."""
    delta = noninferiority.assess_counts(gained, lost, n, 0.01).delta
    assert delta.low is not None
    assert delta.high is not None
    assert -1 <= delta.low <= (gained - lost) / n <= delta.high <= 1
    assert delta.low < delta.high


@given(st.integers(1, 3000), st.data(), st.sampled_from([0.0, 0.005, 0.01, 0.2]))
def test_no_limit_of_a_share_is_beyond_what_is_possible(n: int, data: st.DataObject, margin: float) -> None:
    """What agrees with fp32 on every example cannot agree on more: -1 <= low <= change <= high <= 0."""
    test = noninferiority.assess_share(data.draw(st.integers(0, n)), n, margin)
    assert test.delta.low is not None
    assert test.delta.high is not None
    assert -1 <= test.delta.low <= test.delta.value <= test.delta.high <= 0


@pytest.mark.parametrize(("right", "n"), [(97, 100), (0, 7), (7, 7), (1, 2)])
def test_the_limits_of_a_share_are_the_exact_ones(right: int, n: int) -> None:
    """Of what agrees, less one; ``p_worse`` is the chance of so few, and the number is asked for the share itself."""
    test, exact = noninferiority.assess_share(right, n, 0.01), intervals.clopper_pearson(right, n, 0.9)
    expected = [exact.value - 1, exact.low - 1, exact.high - 1]
    assert [test.delta.value, test.delta.low, test.delta.high] == pytest.approx(expected)
    assert test.p_worse == pytest.approx(float(scipy_stats.binom.cdf(right, n, 0.99)))
    if test.outcome == "INCONCLUSIVE":
        assert test.examples == examples_needed.for_share(right, n, 0.99, (1 - 0.9) / 2)


def test_what_decides_a_share_without_a_difference() -> None:
    """299 examples show a loss below 1 % (0.99^299 < 5 %), 298 do not; fewer ask for more, as one may differ yet."""
    assert noninferiority.assess_share(298, 298, 0.01).outcome == "INCONCLUSIVE"
    assert noninferiority.assess_share(299, 299, 0.01).outcome == "PASS"
    few = noninferiority.assess_share(76, 76, 0.01)
    assert few.examples is not None
    assert few.examples > 299


@pytest.mark.parametrize("values", [[0.0, 1e300, -1e300, 5.0], [1e200] * 3 + [0.0]])
def test_values_whose_squares_no_float_holds_end_no_run(values):
    """Files that somebody else wrote may hold any number: such values are not decided, nor their number estimated."""
    with np.errstate(over="ignore", invalid="ignore"):
        test = noninferiority.assess_examples(values, np.zeros(len(values)), 1.0)
    assert (test.outcome, test.examples) == ("INCONCLUSIVE", None)
    huge = noninferiority.assess_interval(Interval(value=0.0, low=-1e200, high=1e200), 1.0, n=4)
    assert (huge.outcome, huge.examples) == ("INCONCLUSIVE", None)


def test_the_skewness_is_that_of_a_mean_of_gains_and_losses() -> None:
    """By its definition, of an example that is gained, lost or neither."""
    n, chances, changes = 200, np.array([0.02, 0.05, 0.93]), np.array([1.0, -1.0, 0.0])
    mean = float(chances @ changes)
    variance = float(chances @ (changes - mean) ** 2)
    expected = float(chances @ (changes - mean) ** 3) / variance**1.5 / np.sqrt(n)
    for distance in (-3.0, 2.0):
        statistic = distance / np.sqrt(n * variance)
        assert noninferiority._skewness(distance, statistic, n, mean) == pytest.approx(expected)


def test_counts_are_brought_nearer_and_straightened_below_what_is_tested() -> None:
    """By a quarter of an example above it and by half of one below, at most to it; below, by Hall's cubic of a sixth of
    the skewness."""
    n, delta = 400, -0.01  # 4 more lost than gained
    for gained, lost, factor in ((6, 3, 1 - 0.25 / 7), (2, 4, 1 - 0.25 / 2)):
        plain = intervals.score_statistic(gained, lost, n, delta)
        assert noninferiority._score(gained, lost, n, delta) == pytest.approx(plain * factor)
    for gained, lost in ((1, 5), (1, 5.5), (1.25, 5)):
        assert noninferiority._score(gained, lost, n, delta) == 0.0
    assert noninferiority._score(1.3, 5, n, delta) > 0.0
    plain = intervals.score_statistic(1, 12, n, delta)
    bend = noninferiority._skewness(-7.0, plain, n, delta) / 6
    shortened = plain * (1 - 0.5 / 7)
    hall = (1 - (1 - bend * shortened) ** 3) / (3 * bend) + bend
    assert noninferiority._score(1, 12, n, delta) == pytest.approx(hall)


@pytest.mark.parametrize("margin", [-0.01, 0.0, 0.01, 0.999, 1.0])
def test_a_margin_that_no_loss_can_reach_has_no_p_value(margin: float) -> None:
    """No less than none of the examples, and less than all; how many would decide it is asked between the two."""
    counts, share = noninferiority.assess_counts(2, 3, 100, margin), noninferiority.assess_share(99, 100, margin)
    for test in (counts, share):
        assert (test.p_worse is None) == (margin in (-0.01, 1.0))
        assert (test.examples is None) == (margin != 0.01)
    assert noninferiority.assess_interval(share.delta, margin, n=100).level == 0.95


@pytest.mark.parametrize(
    ("bounds", "changes"),
    [
        ((None, None), (None, None)),
        ((0.0, 1.0), (-0.75, 0.875)),
        ((0.0, None), (-0.75, 0.625)),
        ((None, 1.0), (None, 0.875)),
        ((0.9, 0.1), (0.0, 0.0)),
    ],
)
def test_what_an_example_can_lose_and_gain_follows_from_the_values(
    bounds: noninferiority.Bounds, changes: noninferiority.Bounds
) -> None:
    """From the best there was down to the lowest, from the worst up to the highest; one that is not known is the
    highest that was seen, where a lowest is known."""
    new, old = np.array([0.5, 0.75]), np.array([0.125, 0.75])
    assert noninferiority._bound_change(new, old, bounds) == changes
    assert noninferiority._bound_change(old, new, (0.0, None)) == (-0.75, 0.25)


def test_fewer_examples_than_show_rare_losses_are_never_called_enough() -> None:
    """Where the lowest value is not known, and the change speaks for it: as many as show what strikes 1 in 100. No
    number of examples passes what is beyond the margin, and none is asked for no margin."""
    noise = np.random.default_rng(12).normal(0, 1, 60)
    noise -= noise.mean()
    old = np.zeros(60)
    small = noninferiority.assess_examples(noise, old, 0.24)
    known = noninferiority.assess_examples(noise, old, 0.24, bounds=(-9.0, 9.0))
    beyond = noninferiority.assess_examples(noise - 0.5, old, 0.3, bounds=(None, 4.0))
    assert [test.outcome for test in (small, known, beyond)] == ["INCONCLUSIVE"] * 3
    assert (small.examples, small.reason) == (UNSEEN, None)
    assert known.examples is not None
    assert beyond.examples is not None
    assert 60 < beyond.examples < UNSEEN
    assert noninferiority.assess_examples(noise, old, 0.0).examples is None


def test_right_or_wrong_is_tested_by_its_flips() -> None:
    """Of examples as of counts, which are those of examples that there are; what decides a count is the same test."""
    new, old = np.repeat([1.0, 0.0, 1.0], [30, 20, 950]), np.repeat([0.0, 1.0, 1.0], [30, 20, 950])
    assert noninferiority.assess_examples(new, old, 0.01) == noninferiority.assess_counts(30, 20, 1000, 0.01)
    halves = noninferiority.assess_examples(new / 2, old / 2, 0.01)
    assert halves.method == "weighted mean"
    with pytest.raises(ValueError, match="1 gained and 100 lost of 100 is no paired table"):
        noninferiority.assess_counts(1, 100, 100, 0.01)
    decides = noninferiority._decider(0.01, 0.9)
    assert [decides(*flips, 1000) for flips in ((0, 40), (20, 30), (30, 20))] == [True, False, True]
