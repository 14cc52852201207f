"""Rules of qbench/quant/calibrators/hfmg.py: the way on which a range shrinks, and where it ends."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from qbench.quant.calibrators import hfmg
from qbench.quant.calibrators.bins import Bins

Array = NDArray[Any]


def steps(counts: Array, zero: int) -> list[tuple[int, int]]:
    """Each range on the way, a hundred-thousandth of the values at a time."""
    shares = np.cumsum(counts) / counts.sum()
    levels = np.arange(1, 100_000) * 1e-5
    lefts, rights = np.searchsorted(shares, levels), np.searchsorted(shares, 1 - levels)
    first, last, left, right = 0, len(counts) - 1, 0, 0
    ranges = [(first, last)]
    while left + right < 99_999:
        to_left, to_right = min(int(lefts[left]), zero), max(int(rights[right]), zero)
        if to_left - first > last - to_right:
            first, left = to_left, left + 1
            ranges.append((first, last))
        else:
            if to_right != last:
                ranges.append((first, to_right))
            last, right = to_right, right + 1
    return ranges


def shapes() -> list[Array]:
    random = np.random.default_rng(0)
    bell = np.exp(-(((np.arange(64) - 30) / 9) ** 2))
    return [
        random.integers(1, 1000, 64).astype(float),
        np.floor(bell * 1e6) + random.integers(0, 9, 64),
        np.append(np.floor(bell * 1e7), [0, 0, 0, 5]),
    ]


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("zero", [0, 20, 63])
def test_the_side_that_frees_more_bins_gives_up_values(number: int, zero: int) -> None:
    """The right one of equals; neither end passes zero."""
    counts = shapes()[number]
    assert list(hfmg._walk_ranges(counts, zero)) == steps(counts, zero)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("levels", [16, 8])
@pytest.mark.parametrize("low", [-3.0, 0.0, -6.4])
def test_shrinking_stops_where_the_error_rises(number: int, levels: int, low: float) -> None:
    """The range before that; levels lie in the middle of equal parts."""
    counts = shapes()[number]
    high = low + 0.1 * len(counts) if low else 6.4
    edges = np.linspace(low, high, len(counts) + 1)
    zero = min(int(np.searchsorted(edges, 0.0, side="right")) - 1, len(counts) - 1)
    least, best = math.inf, (0, 0)
    for first, last in steps(counts, zero):
        width = (edges[last + 1] - edges[first]) / levels
        error = Bins(edges=edges, counts=counts).squared_error(width, edges[first] + width / 2, levels)
        if error > least:
            break
        least, best = error, (first, last)
    assert hfmg._shrink_range(counts, low, high, levels) == (edges[best[0]], edges[best[1] + 1])


@pytest.mark.parametrize(
    ("low", "high", "asymmetric", "asked"),
    [
        (-2.0, 6.0, True, (4096, -2.0, 6.0)),
        (1.0, 6.0, True, (4096, 0.0, 6.0)),
        (-6.0, -1.0, True, (4096, -6.0, 0.0)),
        (-2.0, 6.0, False, (4096, 0.0, 6.0)),
        (-6.0, 2.0, False, (4096, 0.0, 6.0)),
        (-6.0, -2.0, False, (4096, 0.0, 6.0)),
    ],
)
def test_a_range_holds_zero(
    low: float, high: float, asymmetric: bool, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A symmetric one is that of the absolute values, within the values; the levels are the quantization's."""
    calls = []

    def shrink(counts: Array, low: float, high: float, levels: int) -> tuple[float, float]:
        calls.append((len(counts), low, high))
        assert levels == 200
        assert counts.sum() == pytest.approx(100)
        return 0.0, 1.0

    monkeypatch.setattr(hfmg, "_shrink_range", shrink)
    instance = hfmg.Hfmg(asymmetric=asymmetric)
    instance.levels = 200
    bins = Bins(edges=np.array([low, high]), counts=np.array([100]))
    instance._histogram = SimpleNamespace(low=low, high=high, bins=lambda: bins)  # type: ignore[assignment]
    actual = instance.range()
    assert calls == [asked]
    assert actual == ((0.0, 1.0) if asymmetric else (max(low, -128 / 127), min(high, 1.0)))
    assert (hfmg.Hfmg().num_of_bins, hfmg.SquaredErrorHistogram().num_of_bins) == (4096, 4096)
