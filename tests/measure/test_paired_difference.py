"""Differences of times over generations of processes, coarse where there are few."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from qbench.machine.process_spread import RATIO_SPREAD
from qbench.measure.paired_difference import (
    PairedDifference,
    compare_times,
    difference_over_generations,
    variance_of_median,
)
from qbench.measure.samples import Samples
from qbench.stats import intervals

RATIOS = st.lists(st.floats(-1, 1), min_size=1, max_size=12)


def by_generation(*series: list[float]) -> dict[int, np.ndarray]:
    return {number: np.asarray(values) for number, values in enumerate(series)}


def test_from_three_generations_on_it_is_students_t_over_their_medians():
    """The same limits as the speed-up's interval over processes; nothing is assumed."""
    difference = difference_over_generations(by_generation([0.1, 0.1, 0.9], [0.12], [0.14, 0.14]))
    expected = intervals.exp(intervals.t_interval(np.array([0.1, 0.12, 0.14]), 0.95))
    ratio = difference.ratio()
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((expected.value, expected.low, expected.high))
    assert (difference.generations, difference.freedom, difference.coarse) == (3, 2, False)


def test_one_generation_is_no_narrower_than_processes_differ():
    """A thousand equal blocks of one process say nothing of the next process: the known spread stays."""
    difference = difference_over_generations(by_generation([0.5] * 1000))
    assert difference.coarse
    assert difference.error == pytest.approx(RATIO_SPREAD, rel=0.01)
    low, high = difference.limits()
    assert 0.5 - low == pytest.approx(high - 0.5) == pytest.approx(2.447 * RATIO_SPREAD, rel=0.02)


def test_noisy_blocks_widen_what_one_generation_says():
    """A host that takes half a core away shows in the blocks."""
    calm = difference_over_generations(by_generation([0.0, 0.01, -0.01, 0.0, 0.01, -0.01]))
    noisy = difference_over_generations(by_generation([0.0, 0.3, -0.3, 0.0, 0.3, -0.3]))
    assert noisy.error > 3 * calm.error


@given(st.lists(RATIOS, min_size=1, max_size=6), st.floats(-0.5, 0.5))
def test_a_constant_factor_moves_the_value_and_nothing_else(series, shift):
    """All ratios times a factor: the value moves by its logarithm, the error stays."""
    plain = difference_over_generations(by_generation(*series))
    moved = difference_over_generations(by_generation(*[[value + shift for value in values] for values in series]))
    assert moved.value == pytest.approx(plain.value + shift, abs=1e-9)
    assert moved.error == pytest.approx(plain.error, abs=1e-6)
    low, high = plain.limits()
    assert low < plain.value < high


def test_two_cases_that_never_met_have_no_difference():
    """No common round of a common generation: None, never 0."""

    def samples(process: int) -> Samples:
        return Samples(
            protocol="race",
            stopped="screened",
            calls_ns=np.asarray([100]),
            block=np.asarray([0]),
            process=np.asarray([process]),
            round=np.asarray([0]),
        )

    assert compare_times(samples(0), samples(1)) is None
    assert math.exp(compare_times(samples(0), samples(0)).value) == 1.0


def test_what_no_block_shows_is_added_to_the_error() -> None:
    """By its variance; what is known of it from elsewhere brings degrees of freedom, so that three generations do not
    make 5 % into 20."""
    generations = by_generation([0.1], [0.101], [0.099])
    plain, unseen = (difference_over_generations(generations, unseen=error) for error in (0.0, 0.05))
    assert unseen.error == pytest.approx(math.hypot(plain.error, 0.05))
    assert plain.freedom == 2
    assert unseen.freedom == pytest.approx(30, rel=0.01)
    low, high = unseen.limits()
    assert (high - low) / 2 == pytest.approx(0.102, abs=0.001)


def test_what_no_block_shows_never_narrows_limits() -> None:
    """Its degrees of freedom would, far out in the tails of few generations."""
    generations = by_generation([0.1], [0.11], [0.09])
    plain, unseen = (difference_over_generations(generations, unseen=error) for error in (0.0, 0.008))
    for level in (0.5, 0.9, 0.95, 0.999, 0.99999):
        assert unseen.limits(level)[0] <= plain.limits(level)[0] + 1e-12
    assert unseen.p_not_below(0.2) >= plain.p_not_below(0.2) * (1 - 1e-9)
    assert unseen.half_width_seen() == pytest.approx(plain.half_width_seen())


@pytest.mark.parametrize("values", [[0.1], [0.1, 0.1], [0.0, 0.02, 0.04], [0.5] * 20])
def test_blocks_tell_how_far_off_their_median_is(values: list[float]) -> None:
    """Pi / 2 of the variance of a mean, whose spread six blocks of 1.5 % complete."""
    squares = sum((value - np.mean(values)) ** 2 for value in values)
    expected = math.pi / 2 * (6 * 0.015**2 + squares) / (6 + len(values) - 1) / len(values)
    assert variance_of_median(np.asarray(values)) == pytest.approx(expected)


def test_a_generation_without_a_block_says_nothing() -> None:
    """As if it had not been; where no generation has one there is no difference."""
    bare, more = (
        difference_over_generations(by_generation(*series)) for series in (([0.1], [0.3]), ([0.1], [], [0.3]))
    )
    assert bare == more
    assert more is not None
    assert (more.generations, more.coarse) == (2, True)
    assert difference_over_generations(by_generation([], [])) is None
    assert difference_over_generations({}) is None


@pytest.mark.parametrize(("count", "coarse", "freedom"), [(1, True, 6), (2, True, 7), (3, False, 2), (4, False, 3)])
def test_few_generations_are_completed_by_what_is_known_of_processes(count: int, coarse: bool, freedom: int) -> None:
    """By their own spread from three on; before, by that of processes, worth six degrees of freedom."""
    values = [0.1, 0.12, 0.17, 0.11][:count]
    difference = difference_over_generations(by_generation(*[[value] * 4 for value in values]))
    squares = float(((np.array(values) - np.mean(values)) ** 2).sum())
    known = RATIO_SPREAD**2 + variance_of_median(np.full(4, 0.1))
    variance = (6 * known + squares) / freedom if coarse else squares / freedom
    assert (difference.coarse, difference.freedom, difference.seen_freedom) == (coarse, freedom, freedom)
    assert difference.error == pytest.approx(math.sqrt(variance / count))
    assert difference.value == pytest.approx(np.mean(values))


def test_equal_medians_are_equal_to_a_millionth() -> None:
    """They show no spread, and no clock repeats that well."""
    difference = difference_over_generations(by_generation([0.1], [0.1], [0.1]))
    assert difference.error == 1e-6
    assert difference.p_not_below(0.1) == pytest.approx(0.5)
    assert difference.p_not_below(0.0) == pytest.approx(1, abs=1e-9)
    assert difference.p_not_below(0.2) == pytest.approx(0, abs=1e-9)


def test_the_p_value_is_students_and_the_more_careful_of_two() -> None:
    """Of all that is uncertain, and of what further generations would narrow."""
    difference = PairedDifference(
        value=0.1, error=0.05, freedom=20.0, generations=3, coarse=False, unseen=0.04, seen_freedom=2.0
    )
    of_all, of_seen = (scipy_stats.t.cdf(0.1 / error, freedom) for error, freedom in ((0.05, 20), (0.03, 2)))
    assert difference.p_not_below(0.0) == pytest.approx(max(of_all, of_seen))
    assert of_seen < of_all
    halves = [scipy_stats.t.ppf(0.995, freedom) * error for error, freedom in ((0.05, 20), (0.03, 2))]
    low, high = difference.limits(0.99)
    assert (low, high) == pytest.approx((0.1 - max(halves), 0.1 + max(halves)))
    assert difference.half_width_seen(0.99) == pytest.approx(halves[1])
    assert halves[1] > halves[0]
