"""Rules of qbench/quant/calibrators/mse.py: which shares are tried, and over which bins."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qbench.quant.calibrators import mse
from qbench.quant.calibrators.bins import Bins


class Coarse:
    """Bins that give the width of the coarse ones in their place."""

    def __init__(self) -> None:
        self.widths: list[float] = []

    def coarse(self, width: float) -> float:
        self.widths.append(width)
        return width


def search(error: Any) -> tuple[mse._Search, Coarse]:
    """One by an error of two ends, and its bins."""
    bins = Coarse()
    return mse._Search(bins, lambda width, low, high: error(low, high)), bins  # type: ignore[arg-type]


def off(value: float, target: float) -> float:
    """How many doublings lie between two numbers."""
    return abs(math.log2(value / target))


@pytest.mark.parametrize("target", [1.0, 0.99, 0.93, 0.87, 0.6, 0.31, 0.04, 1 / 300, 1 / 20000, 1 / 32768])
def test_the_best_share_is_met_within_a_percent(target: float) -> None:
    """From the whole range down to 1 / 32768 of it."""
    finder, _ = search(lambda low, high: off(high, target))
    assert off(finder.share(lambda share: (0.0, share)), target) <= 1 / 128 + 1e-9


def test_the_largest_of_equal_shares_is_taken() -> None:
    """The whole range where nothing tells them apart; none is above it."""
    tried: list[float] = []

    def error(low: float, high: float) -> float:
        tried.append(high)
        return 0.0

    assert search(error)[0].share(lambda share: (0.0, share)) == 1.0
    assert max(tried) == 1.0
    assert min(tried) == 2**-15
    assert search(lambda low, high: float(high > 0.5))[0].share(lambda share: (0.0, share)) == 0.5


@pytest.mark.parametrize(("target", "nearest"), [(0.01, -19 / 64), (100.0, 19 / 64), (0.5 * 2 ** (-5 / 64), -5 / 64)])
def test_around_a_share_only_near_ones_are_tried(target: float, nearest: float) -> None:
    """A quarter of a doubling and 3 / 64 on either side."""
    finder, _ = search(lambda low, high: off(high, target))
    assert finder.share(lambda share: (0.0, share), 0.5) == pytest.approx(0.5 * 2**nearest)


@pytest.mark.parametrize(("step", "width"), [(1.0, 1 / 8), (1.99, 1 / 8), (2.0, 1 / 4), (0.99, 1 / 16)])
def test_bins_are_an_eighth_of_a_step_and_finer(step: float, width: float) -> None:
    """By powers of two, each made once."""
    widths = []
    bins = Coarse()
    finder = mse._Search(bins, lambda given, low, high: widths.append(given) or 0.0)  # type: ignore[arg-type]
    for _ in range(2):
        finder._of((-55 * step, 200 * step))
    assert widths == [width, width]
    assert bins.widths == [width]


def ranged(low: float, high: float, error: Any, asymmetric: bool = True) -> tuple[float, float]:
    """What is chosen of these values by an error of the ends."""
    instance = mse.LeastSquares(asymmetric=asymmetric)
    bins = SimpleNamespace(coarse=lambda width: None)
    instance._histogram = SimpleNamespace(low=low, high=high, bins=lambda: bins)  # type: ignore[assignment]
    instance.error = lambda bins, low, high: error(low, high)  # type: ignore[method-assign]
    return instance.range()


def test_each_end_comes_to_its_own_best_share() -> None:
    """Where both are moved; a range with one end at zero, and a symmetric one, moves as a whole."""

    def apart(low: float, high: float) -> float:
        return off(-low, 0.5) + off(high, 3.0)

    low, high = ranged(-8.0, 8.0, apart)
    assert off(-low, 0.5) <= 1 / 64
    assert off(high, 3.0) <= 1 / 64
    low, high = ranged(-8.0, 8.0, apart, asymmetric=False)
    assert -low == high
    assert 0.5 <= high <= 3.0
    assert ranged(2.0, 8.0, lambda low, high: off(high, 4.0)) == (0.0, 4.0)
    assert ranged(-8.0, -2.0, lambda low, high: off(-low, 4.0)) == (-4.0, 0.0)
    assert ranged(0.0, 0.0, apart) == (0.0, 0.0)


def searched(
    shares: list[float], monkeypatch: pytest.MonkeyPatch, low: float = -8.0
) -> tuple[tuple[float, float], list[Any]]:
    """The range where the search gives these shares, and the whole ends and the share near which it was asked."""
    asked: list[Any] = []
    left = iter(shares)

    class Search:
        def __init__(self, *_: Any) -> None:
            pass

        def share(self, ends: Any, near: float | None = None) -> float:
            asked.append((ends(1.0), near))
            return next(left)

    monkeypatch.setattr(mse, "_Search", Search)
    return ranged(low, 4.0, None), asked


def test_ends_move_in_turn_until_they_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upper one first; after the first round near where they were."""
    ends, asked = searched([0.5, 0.25, 0.5, 0.25, 0.5], monkeypatch)
    assert asked == [((-8, 4), None), ((-4, 4), None), ((-8, 1), None), ((-4, 4), 0.25), ((-8, 1), 0.5)]
    assert ends == (-4, 1)


def test_ends_that_go_on_moving_do_so_four_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each; a range that ends at zero has one end to move."""
    shares = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25]
    ends, asked = searched(shares, monkeypatch)
    assert ends == (-8 * 0.25, 4 * 0.3)
    assert [near for _, near in asked] == [None, None, None, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    ends, asked = searched([0.5], monkeypatch, low=1.0)
    assert ends == (0, 2)
    assert asked == [((0, 4), None)]


def test_the_bins_of_a_search_are_those_of_the_histogram() -> None:
    """An error over coarse ones is that of the values."""
    instance = mse.LeastSquares()
    instance.add(np.float32([-1, -0.5, 0.25, 1]))
    assert isinstance(instance._histogram.bins(), Bins)
    assert instance.range() == pytest.approx((-1, 1), rel=0.02)
