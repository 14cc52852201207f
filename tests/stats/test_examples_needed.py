"""Rules of stats/examples_needed: with so many examples four in five of the runs that may follow are decided."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from qbench.stats import examples_needed, noninferiority
from qbench.stats.interval_type import Interval

DECIDED = (0.70, 0.90)
COUNTS = [(0, 0, 76, 0.01), (2, 3, 450, 0.01), (1, 5, 500, 0.01), (9, 19, 1000, 0.01), (20, 120, 10_000, 0.01),
          (30, 38, 450, 0.02)]  # fmt: skip


@pytest.mark.parametrize(("gained", "lost", "n", "margin"), COUNTS)
def test_of_right_or_wrong_four_in_five_are_decided(gained: int, lost: int, n: int, margin: float) -> None:
    """Drawn anew from the same posterior, with the present counts kept: 70 to 90 % of 800 continuations."""
    test = noninferiority.assess_counts(gained, lost, n, margin)
    assert test.outcome == "INCONCLUSIVE"
    assert test.examples is not None
    assert test.examples > n
    random = np.random.default_rng(7)
    rates = random.dirichlet([gained + 0.5, lost + 0.5, n - gained - lost + 0.5], 800)
    counts = random.multinomial(test.examples - n, rates)[:, :2] + (gained, lost)
    decides = noninferiority._decider(margin, noninferiority.LEVEL)
    share = np.mean([decides(more, less, test.examples) for more, less in counts.tolist()])
    assert DECIDED[0] <= share <= DECIDED[1]


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(("n", "loss"), [(200, 0.004), (450, 0.008), (450, 0.014)])
def test_of_a_mean_four_in_five_are_decided(n: int, loss: float, skewed: bool) -> None:
    """The mean of the examples to come lies where the present ones leave it open; 70 to 90 % of 300 continuations,
    tested by ``assess_examples``."""
    random = np.random.default_rng(n)

    def draw(count: int) -> np.ndarray:
        return 0.05 * (1 - random.exponential(size=count) if skewed else random.normal(size=count))

    now = draw(n)
    now += -loss - now.mean()
    test = noninferiority.assess_examples(now, np.zeros(n), 0.01, bounds=(-1.0, 1.0))
    assert test.outcome == "INCONCLUSIVE"
    assert test.examples is not None
    decided = 0
    for _ in range(300):
        mean = -loss + now.std() / np.sqrt(n) * random.normal()
        both = np.concatenate([now, mean + draw(test.examples - n)])
        decided += noninferiority.assess_examples(both, np.zeros(len(both)), 0.01, bounds=(-1.0, 1.0)).outcome != (
            "INCONCLUSIVE"
        )
    assert DECIDED[0] <= decided / 300 <= DECIDED[1]


@pytest.mark.parametrize(("right", "n"), [(76, 76), (97, 100), (445, 450)])
def test_of_a_share_four_in_five_are_decided(right: int, n: int) -> None:
    """By the exact test; 70 to 90 % of 800 continuations."""
    needed = noninferiority.assess_share(right, n, 0.01).examples
    assert needed is not None
    random = np.random.default_rng(3)
    counts = right + random.binomial(needed - n, random.beta(right + 0.5, n - right + 0.5, 800))
    outcomes = [noninferiority.assess_share(int(count), needed, 0.01).outcome for count in counts]
    assert DECIDED[0] <= np.mean([outcome != "INCONCLUSIVE" for outcome in outcomes]) <= DECIDED[1]


def test_one_more_example_is_never_the_answer_where_it_decides_nothing() -> None:
    """1 gained and 5 lost of 500 with a margin of 1 %: the published formula says fewer than there are."""
    test = noninferiority.assess_counts(1, 5, 500, 0.01)
    assert test.examples is not None
    assert test.examples > 5_000
    assert noninferiority.assess_counts(1, 5, 500, 0.01) == test


def test_what_takes_more_than_a_hundred_times_the_examples_takes_many_more() -> None:
    """Limits that are far wider than the spread explains shrink too slowly; without limits nothing is known."""
    wide = Interval(value=-0.01, low=-2.0, high=2.0)
    needed = examples_needed.for_mean(wide, 1e-4, 100, 0.01, 0.9)
    assert needed == 100 * 100 + 1
    assert examples_needed.are_many(needed, 100)
    assert not examples_needed.are_many(100 * 100, 100)
    assert examples_needed.for_mean(Interval(value=0.0), 0.01, 100, 0.01, 0.9) is None


@pytest.mark.parametrize(("gained", "lost"), [(0, 25), (25, 0), (25, 25)])
def test_what_was_not_seen_comes_as_often_as_its_posterior_says(gained: int, lost: int) -> None:
    """A test that waits for the first example that is gained, lost or neither, of which 50 had none: by the beta
    binomial distribution under Jeffreys' prior, within a quarter, since 400 are drawn."""

    def decides(gained: int, lost: int, number: int) -> bool:
        return min(gained, lost, number - gained - lost) > 0

    counts = {50 - gained - lost, gained, lost}
    assert counts == {0, 25}
    more = np.arange(1, 5000)
    share = 1 - scipy_stats.betabinom.pmf(0, more, 0.5, 50 + 1.0)
    expected = 50 + int(more[np.argmax(share >= 0.8)])
    assert examples_needed.for_counts(gained, lost, 50, decides) == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize(
    ("n", "from_", "least", "most"),
    [(100, 777, 777, 784), (100, 0, 101, 101), (8, 0, 9, 9), (3, 300, 300, 303), (3, 301, 301, 301), (1, 2, 2, 2)],
)
def test_the_least_number_that_decides_is_found_to_one_percent(n: int, from_: int, least: int, most: int) -> None:
    """Never none more than there are; beyond a hundred times as many, one more than that."""
    number = examples_needed._grow(n, lambda number: examples_needed.POWER if number >= from_ else 0.79)
    assert least <= number <= most


@pytest.mark.parametrize(
    ("value", "low", "spread"), [(0.0, -0.1, math.nan), (math.inf, 0.0, 1.0), (0.0, -math.inf, 1.0)]
)
def test_of_what_is_no_number_nothing_is_known(value: float, low: float, spread: float) -> None:
    """Files that somebody else wrote may hold anything; of no example, nothing follows."""
    assert examples_needed.for_mean(Interval(value=value, low=low, high=0.1), spread, 9, 0.01, 0.9) is None
    fine = Interval(value=0.0, low=-0.1, high=0.1)
    assert examples_needed.for_mean(fine, 0.1, 0, 0.01, 0.9) is None
    assert examples_needed.for_mean(fine, 0.1, 1, 0.01, 0.9) is not None
    assert examples_needed.for_mean(fine, 0.0, 9, 0.01, 0.9) is not None  # all values are equal, the limits are not
    for half in (Interval(value=0.0, low=-0.1), Interval(value=0.0, high=0.1)):
        assert examples_needed.for_mean(half, 0.1, 9, 0.01, 0.9) is None
