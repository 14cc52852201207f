"""AMCT's IFMR (input feature map reconstruction): the clipped maximum that leaves the least squared error."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from qbench.quant.calibrators.bins import Bins
from qbench.quant.calibrators.histogram import Counting

FINE = 8  # bins to a step of the finest candidate


class Ifmr(Counting):
    """The maximum starts at ``max_percentile`` of the sorted values, the minimum at ``min_percentile`` counted from
    the other end; of the maxima ``search_range[0]``, + ``search_step``, ..., ``search_range[1]`` times that start, the
    one that quantizes all values with the least mean squared error is taken.

    The minimum keeps its start; where no value is positive it is searched instead, and for a symmetric quantization
    both ends move together. Against the same search over the stored values the result is at most one candidate off,
    in any order and however the values are cut. Source: AMCT's manual ("IFMR Algorithm").
    """

    name: ClassVar[str] = "ifmr"

    def __init__(
        self,
        *,
        asymmetric: bool = True,
        max_percentile: float = 0.999999,
        min_percentile: float = 0.999999,
        search_range: tuple[float, float] = (0.7, 1.3),
        search_step: float = 0.01,
    ) -> None:
        super().__init__(asymmetric=asymmetric)
        for name, value in {"max_percentile": max_percentile, "min_percentile": min_percentile}.items():
            if not 0.5 < value <= 1:
                raise ValueError(f"{name}: expected a share above 0.5 to 1, got {value}")
        start, end = search_range
        if not 0 < start < end < math.inf:
            raise ValueError(f"search_range: expected a start above 0 and an end above that, got {start}, {end}")
        if not 0 < search_step <= end - start + 1e-9:
            raise ValueError(
                f"search_step: expected a number above 0 that is at most the length of search_range, {end - start:g}, "
                f"got {search_step}"
            )
        self.max_percentile, self.min_percentile = max_percentile, min_percentile
        self._factors = start + search_step * np.arange(math.floor((end - start) / search_step + 1e-9) + 1)

    def range(self) -> tuple[float, float]:
        """The range of the best candidate. Raises ``ValueError`` before the first value."""
        bins = self._histogram.bins()
        count = int(bins.counts.sum())
        high = bins.value(math.ceil(self.max_percentile * count) - 1)
        low = bins.value(count - math.ceil(self.min_percentile * count))
        low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            return low, high
        candidates = [self._candidate(low, high, factor) for factor in self._factors.tolist()]
        least = min(end - start for start, end in candidates) / 255
        coarse: Bins = bins.coarse(least / FINE)
        return min(candidates, key=lambda ends: self.error(coarse, *ends))

    def _candidate(self, low: float, high: float, factor: float) -> tuple[float, float]:
        if not self.asymmetric:
            return low * factor, high * factor
        return (low, high * factor) if high > 0 else (low * factor, high)
