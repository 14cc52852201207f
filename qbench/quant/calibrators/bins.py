"""What was counted: neighbouring bins of any width, and what can be asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Bins:
    """``counts[i]`` values lie between ``edges[i]`` and ``edges[i + 1]`` (float64, one more than bins), spread evenly;
    a bin without width holds one value. The outer edges are the least and the greatest value."""

    edges: Array
    counts: Array

    def value(self, position: int) -> float:
        """The value at a position (from 0) of the sorted values: right to the width of its bin, the ends exactly."""
        reached = np.cumsum(self.counts)
        if position <= 0 or position >= reached[-1] - 1:
            return float(self.edges[0] if position <= 0 else self.edges[-1])
        at = int(np.searchsorted(reached, position, side="right"))
        share = (position + 0.5 - (reached[at] - self.counts[at])) / self.counts[at]
        return float(self.edges[at] + share * (self.edges[at + 1] - self.edges[at]))

    def even(self, bins: int, low: float, high: float) -> Array:
        """The counts (float64) in equally wide bins over [low, high], which holds every value: a bin that lies across
        several gives to each in proportion to its width."""
        reached = np.concatenate([[0.0], np.cumsum(self.counts, dtype=np.float64)])
        ends = np.interp(np.linspace(low, high, bins + 1), self.edges, reached)
        ends[0], ends[-1] = 0.0, reached[-1]  # values that lie in an end itself
        counts: Array = np.diff(ends)
        return counts

    def folded(self) -> Bins:
        """The bins of the absolute values; the least of them is known to the width of its bin."""
        ends = np.unique(np.abs(self.edges))
        low, high = self.edges[0], self.edges[-1]
        if low < 0 < high:
            ends = np.union1d([0.0], ends)
        reached = np.concatenate([[0.0], np.cumsum(self.counts, dtype=np.float64)])
        up = np.interp(ends, self.edges, reached)
        down = np.interp(-ends, self.edges, reached)
        up[ends >= high], down[-ends <= low] = reached[-1], 0.0
        within = up - down
        if ends.size == 1:
            return Bins(edges=np.repeat(ends, 2), counts=reached[-1:])
        counts = np.diff(within)
        counts[0] += within[0]
        first = int(np.flatnonzero(counts)[0])
        return Bins(edges=ends[first:], counts=counts[first:])

    def coarse(self, width: float) -> Bins:
        """Bins of about ``width`` where there are several to one, within 4096 widths of zero, and of 1/64 of a doubling
        beyond; the one with zero and the outer ones stay apart."""
        far = 4096 * width
        size = np.abs(self.edges)
        number = np.floor(
            np.copysign(np.minimum(size, far) / width + 64 * np.log2(np.maximum(size / far, 1)), self.edges)
        )
        edges_to_keep = np.ones(self.edges.size, bool)
        edges_to_keep[1:] = number[1:] != number[:-1]
        zero = int(np.searchsorted(self.edges, 0.0))
        edges_to_keep[max(zero - 1, 0) : zero + 2] = True
        edges_to_keep[[0, 1, -2, -1]] = True
        starts = np.flatnonzero(edges_to_keep)
        return Bins(edges=self.edges[starts], counts=np.add.reduceat(self.counts, starts[:-1]))

    def squared_error(self, scale: float, lowest: float, levels: int) -> float:
        """The sum of squared errors when every value goes to the nearest of the ``levels`` at lowest, lowest + scale,
        ...; values beyond the last go to it. The integral over each bin, without rounding of the bins."""
        steps = (self.edges - lowest) / scale
        level = np.rint(steps).clip(0, levels - 1)
        apart = steps - level
        square = apart * apart  # a third power by ``**`` takes five times as long as all the rest
        # The antiderivative of (steps - level)^2: each whole level adds the integral of t^2 over -1/2 .. 1/2.
        integral = level / 12 + square * apart / 3
        widths = steps[1:] - steps[:-1]
        point = widths <= 0
        mean = np.where(point, square[1:], (integral[1:] - integral[:-1]) / np.where(point, 1.0, widths))
        return float(np.dot(self.counts, mean)) * scale * scale
