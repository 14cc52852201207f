"""Counts of values in bins: what is read of them, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.quant.calibrators.bins import Bins


def bins(edges: Any, counts: Any) -> Bins:
    """Of these lists."""
    return Bins(edges=np.array(edges, float), counts=np.array(counts))


def lists(result: Bins) -> tuple[list[float], list[float]]:
    """The edges and the counts."""
    return result.edges.tolist(), result.counts.tolist()


@pytest.mark.parametrize(
    ("position", "value"), [(-1, 0), (0, 0), (1, 0.75), (2, 1.25), (3, 1.75), (4, 2.25), (5, 3), (6, 3)]
)
def test_values_are_spread_evenly_over_their_bin(position: int, value: float) -> None:
    """But for the least and the greatest, which are known."""
    assert bins([0, 1, 3], [2, 4]).value(position) == value
    assert [bins([0, 3], [2]).value(end) for end in (0, 1)] == [0, 3]


@pytest.mark.parametrize(
    ("edges", "counts", "low", "high", "expected"),
    [
        ([0, 1, 3], [2, 4], 0, 3, [2, 2, 2]),
        ([0, 1, 3], [2, 4], 0, 6, [4, 2, 0]),
        ([1, 3], [4], -3, 3, [0, 0, 4]),
        ([1, 3], [4], 1, 4, [2, 2, 0]),
        ([0, 0, 2, 3, 3], [5, 2, 1, 7], 0, 3, [6, 1, 8]),  # bins without width at both ends
    ],
)
def test_even_bins_take_their_share_of_others(
    edges: list[float], counts: list[int], low: float, high: float, expected: list[float]
) -> None:
    """In proportion to their width; nothing is lost at the ends."""
    assert bins(edges, counts).even(3, low, high).tolist() == expected


@pytest.mark.parametrize(
    ("edges", "counts", "folded"),
    [
        ([-2, -1, 1, 2], [4, 2, 8], ([0, 1, 2], [2, 12])),
        ([-3, -2, -1], [1, 2], ([1, 2, 3], [2, 1])),
        ([1, 2, 3], [1, 2], ([1, 2, 3], [1, 2])),
        ([-2, 4], [12], ([0, 2, 4], [8, 4])),
        ([-4, -3, 3, 4], [1, 0, 1], ([3, 4], [2])),  # nothing is below 3
        ([5, 5], [7], ([5, 5], [7])),
        ([-5, -5], [7], ([5, 5], [7])),
        ([-2, -1, 1, 3], [4, 8, 6], ([0, 1, 2, 3], [8, 7, 3])),
        ([-3, -3, 0, 2, 2], [5, 3, 2, 7], ([0, 2, 3], [11, 6])),
    ],
)
def test_bins_of_the_absolute_values(
    edges: list[float], counts: list[int], folded: tuple[list[float], list[int]]
) -> None:
    """From the least that there is."""
    assert lists(bins(edges, counts).folded()) == folded


def test_coarse_bins_are_as_wide_as_is_asked_for() -> None:
    """But for the outer ones and those beside zero."""
    fine = bins(np.linspace(-2, 2, 17), [1] * 16)
    assert lists(fine.coarse(1.0)) == ([-2, -1.75, -1, -0.25, 0, 0.25, 1, 1.75, 2], [1, 3, 3, 1, 1, 3, 3, 1])
    assert lists(fine.coarse(0.1)) == lists(fine)


def test_coarse_bins_far_from_zero_are_a_64th_of_a_doubling() -> None:
    """Beyond 4096 widths."""
    fine = bins([0, 1, 2, 8192, 8200, 8280, 8290, 9000, 9001], [1] * 8)
    assert lists(fine.coarse(1.0)) == ([0, 1, 2, 8192, 8290, 9000, 9001], [1, 1, 1, 3, 1, 1])


@pytest.mark.parametrize(
    ("edges", "counts", "scale", "lowest", "levels", "error"),
    [
        ([0, 1], [10], 1, 0, 2, 10 / 12),
        ([0, 1], [10], 1, 0, 1, 10 / 3),
        ([0, 1], [10], 0.5, 0.25, 2, 10 / 48),
        ([2, 2], [3], 1, 0, 2, 3),
        ([0.25, 0.25], [4], 1, 0, 2, 0.25),
        ([1.0, 1.0, 1.3, 1.3], [10, 0, 4], 0.5, 0.0, 4, 4 * 0.2**2),
        ([1.0, 1.0, 1.3, 1.3], [10, 0, 4], 0.5, 0.0, 2, 10 * 0.5**2 + 4 * 0.8**2),
        ([-1, 3], [4], 1, 0, 2, 37 / 12),
    ],
)
def test_the_squared_error_is_the_integral_over_each_bin(
    edges: list[float], counts: list[int], scale: float, lowest: float, levels: int, error: float
) -> None:
    """To the nearest level; of a bin without width that of its value."""
    assert bins(edges, counts).squared_error(scale, lowest, levels) == pytest.approx(error)


@given(
    st.lists(st.integers(-512, 512).map(lambda number: number / 64), min_size=3, max_size=6),
    st.floats(0.1, 2),
    st.floats(-4, 4),
    st.integers(1, 9),
)
def test_the_squared_error_is_that_of_many_values(edges: list[float], scale: float, lowest: float, levels: int) -> None:
    """Spread over the bins, each to the nearest level."""
    counted = bins(sorted(edges), np.arange(1, len(edges)))
    points = np.linspace(0, 1, 4001)[:, None]
    values = counted.edges[:-1] + points * np.diff(counted.edges)
    nearest = lowest + scale * np.clip(np.rint((values - lowest) / scale), 0, levels - 1)
    expected = (counted.counts * np.square(values - nearest).mean(axis=0)).sum()
    assert counted.squared_error(scale, lowest, levels) == pytest.approx(expected, rel=1e-2, abs=1e-4)
