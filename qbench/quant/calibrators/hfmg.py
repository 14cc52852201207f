"""AMCT's HFMG (histogram feature map glutton): the range shrinks greedily while the error falls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from qbench.quant.calibrators.base import Array
from qbench.quant.calibrators.bins import Bins
from qbench.quant.calibrators.histogram import Counting

STEP = 1e-5  # share of the values by which an end moves at a time
BINS = (1024, 2048, 4096, 8192)  # what AMCT documents


class Hfmg(Counting):
    """Starts from the whole range in ``num_of_bins`` equal bins and gives up STEP of the values at a time, on the side
    where that frees more bins, until the squared error against its levels rises. Zero stays inside.

    Order and batches shift the result by at most one of its bins. Source: AMCT's manual ("HFMG Algorithm"); the search
    is the one that torch.ao's HistogramObserver documents.
    """

    name: ClassVar[str] = "hfmg"

    def __init__(self, *, asymmetric: bool = True, num_of_bins: int = 4096) -> None:
        super().__init__(asymmetric=asymmetric)
        if num_of_bins not in BINS:
            raise ValueError(f"num_of_bins: expected {', '.join(map(str, BINS))}, got {num_of_bins}")
        self.num_of_bins = num_of_bins

    def range(self) -> tuple[float, float]:
        """The range at which shrinking stops. Raises ``ValueError`` before the first value."""
        counted = self._histogram.bins()
        low, high = min(self._histogram.low, 0.0), max(self._histogram.high, 0.0)
        if low == high:
            return low, high
        if self.asymmetric:
            return _shrink_range(counted.even(self.num_of_bins, low, high), low, high, self.levels)
        reach = max(high, -low)
        counts = counted.folded().even(self.num_of_bins, 0.0, reach)
        return self.mirrored(_shrink_range(counts, 0.0, reach, self.levels)[1])


class SquaredErrorHistogram(Hfmg):
    """What recipes call ``histogram``: ``Hfmg``, whose search is that of torch's HistogramObserver, by its common
    name."""

    name: ClassVar[str] = "histogram"


def _shrink_range(counts: Array, low: float, high: float, levels: int) -> tuple[float, float]:
    """The range at the last step that lowered the error."""
    edges = np.linspace(low, high, counts.size + 1)
    bins = Bins(edges=edges, counts=counts)
    # The bin with zero; a range that ends at zero has it in its last bin.
    zero = min(int(np.searchsorted(edges, 0.0, side="right")) - 1, counts.size - 1)
    least, best = math.inf, (0, counts.size - 1)
    for first, last in _walk_ranges(counts, zero):
        width = (edges[last + 1] - edges[first]) / levels
        error = bins.squared_error(width, edges[first] + width / 2, levels)
        if error > least:
            break
        least, best = error, (first, last)
    return float(edges[best[0]]), float(edges[best[1] + 1])


def _walk_ranges(counts: Array, zero: int) -> Iterator[tuple[int, int]]:
    """First and last bin of each range on the way, the whole one first."""
    shares = np.cumsum(counts) / counts.sum()
    levels = np.arange(1, round(1 / STEP)) * STEP
    lefts = np.minimum(np.searchsorted(shares, levels), zero)
    rights = np.maximum(np.searchsorted(shares, 1 - levels, side="left"), zero)
    moves = np.append(np.flatnonzero(rights[1:] != rights[:-1]) + 1, rights.size)
    first, last, left, right = 0, counts.size - 1, 0, 0
    yield first, last
    while left + right < lefts.size:
        by_left, by_right = int(lefts[left]) - first, last - int(rights[right])
        if by_left > by_right:
            first, left = first + by_left, left + 1
        elif by_right > 0:
            last, right = last - by_right, right + 1
        else:  # neither end moves: on to the first step of the right one that does
            right = int(moves[np.searchsorted(moves, right, side="right")])
            continue
        yield first, last
