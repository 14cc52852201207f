"""Rules of qbench/quant/calibrators/percentile.py and ifmr.py: which of the sorted values are the ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qbench.quant.calibrators.bins import Bins
from qbench.quant.calibrators.ifmr import Ifmr
from qbench.quant.calibrators.percentile import Percentile


def told(instance: Any, values: Any) -> Any:
    """The calibrator, as if it had counted each of these values in a bin of its own."""
    ordered = np.sort(np.asarray(values, float))
    counts = np.zeros(2 * ordered.size - 1, np.int64)
    counts[::2] = 1
    bins = Bins(edges=np.repeat(ordered, 2), counts=counts)
    histogram = SimpleNamespace(low=float(ordered[0]), high=float(ordered[-1]), bins=lambda: bins)
    instance._histogram = histogram
    return instance


@pytest.mark.parametrize(
    ("percentile", "ends"),
    [(100, (0, 999)), (99.9, (0, 999)), (99.5, (2, 997)), (99, (5, 994)), (90, (50, 949)), (60, (200, 799))],
)
def test_half_of_what_is_cut_lies_at_each_end(percentile: float, ends: tuple[int, int]) -> None:
    """To the nearest position of 1000 values."""
    assert told(Percentile(percentile=percentile), range(1000)).range() == ends


@pytest.mark.parametrize(("percentile", "reach"), [(100, 999), (99, 989), (90, 899)])
def test_all_that_is_cut_of_a_symmetric_range_is_large(percentile: float, reach: int) -> None:
    """Of the absolute values."""
    low, high = told(Percentile(percentile=percentile, asymmetric=False), range(1000)).range()
    assert (low, high) == (0, pytest.approx(reach, abs=1))


def test_a_hundred_thousandth_is_cut_where_nothing_is_said() -> None:
    """Of 100 and of 50 exactly, only the first is a share that can be kept."""
    assert Percentile().percentile == 99.999
    Percentile(percentile=50.001)
    with pytest.raises(ValueError, match="^percentile: expected"):
        Percentile(percentile=50)


class Widths:
    """Bins that note how wide coarse ones are to be."""

    def __init__(self, bins: Bins, asked: list[float]) -> None:
        self.counts, self.value, self._asked = bins.counts, bins.value, asked

    def coarse(self, width: float) -> str:
        self._asked.append(width)
        return "coarse"


def searched(values: Any, error: Any, **options: Any) -> tuple[Any, list[Any], list[float]]:
    """The range that is best by an error, the ranges tried and the widths of bins."""
    instance = told(Ifmr(**options), values)
    tried: list[Any] = []
    widths: list[float] = []
    bins = Widths(instance._histogram.bins(), widths)
    instance._histogram.bins = lambda: bins

    def of(given: Any, low: float, high: float) -> float:
        assert given == "coarse"
        tried.append((low, high))
        return float(error(low, high))

    instance.error = of
    return instance.range(), tried, widths


TWO = {"search_range": (0.5, 1.0), "search_step": 0.5}


def test_the_maximum_is_searched_from_its_percentile_on() -> None:
    """The minimum keeps its own, counted from the other end; bins are an eighth of the finest step."""
    options = {"max_percentile": 0.9, "min_percentile": 0.8, **TWO}
    best, tried, widths = searched(range(-500, 500), lambda low, high: high, **options)
    assert tried == [(-300, 399 / 2), (-300, 399)]  # the 900th of 1000 values, and the 200th
    assert best == (-300, 399 / 2)
    assert widths == [pytest.approx((300 + 399 / 2) / 255 / 8)]
    assert searched(range(-500, 500), lambda low, high: -high, **options)[0] == (-300, 399)
    assert searched(range(-500, 500), lambda low, high: 0, **options)[0] == (-300, 399 / 2)  # the first of equals


def test_every_value_is_kept_where_the_share_says_so() -> None:
    """The last and the first; a millionth is cut where nothing is said, which of a thousand is none."""
    for options in ({"max_percentile": 1.0, "min_percentile": 1.0}, {}):
        _, tried, _ = searched(range(-500, 500), lambda low, high: high, **TWO, **options)
        assert tried[-1] == (-500, 499)
    plain = Ifmr()
    assert (plain.max_percentile, plain.min_percentile) == (0.999999, 0.999999)
    assert len(plain._factors) == 61


def test_of_negative_values_the_minimum_is_searched() -> None:
    """Zero is the other end; where there is nothing but zeros nothing is searched."""
    best, tried, _ = searched(range(-100, 0), lambda low, high: low, **TWO)
    assert tried == [(-50, 0), (-100, 0)]
    assert best == (-100, 0)
    assert searched(range(1, 101), lambda low, high: 0, **TWO)[1] == [(0, 50), (0, 100)]
    assert searched([0, 0], lambda low, high: 0, **TWO) == ((0.0, 0.0), [], [])


def test_both_ends_of_a_symmetric_range_move_together() -> None:
    """By the same factor."""
    _, tried, _ = searched(range(-100, 51), lambda low, high: high, asymmetric=False, **TWO)
    assert tried == [(-50, 25), (-100, 50)]


@pytest.mark.parametrize("name", ["max_percentile", "min_percentile"])
def test_shares_are_above_a_half(name: str) -> None:
    """A half itself is none; one is."""
    Ifmr(**{name: 0.5001})  # type: ignore[arg-type]
    Ifmr(**{name: 1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"^{name}: expected a share above 0.5 to 1, got 0.5$"):
        Ifmr(**{name: 0.5})  # type: ignore[arg-type]
