"""Whether one scale can hold what a join reads: the values of each input, and the step that all of them would share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# An input is lost where the noise of the common step is more than this beside its own spread, and its own step would be
# so many times as fine: ordinary branches of a U-Net or an inception block differ by less.
LEAST_DECIBELS = 25.0
LEAST_RATIO = 4.0
_LEVELS = 255


@dataclass
class Seen:
    """The values of one input of a join: their ends, and their spread."""

    low: float = math.inf
    high: float = -math.inf
    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, values: NDArray[Any]) -> None:
        """Counts the values of an array."""
        exact = values.astype(np.float64)
        self.low, self.high = min(self.low, float(exact.min())), max(self.high, float(exact.max()))
        self.count += exact.size
        self.total += float(exact.sum())
        self.squares += float((exact * exact).sum())

    @property
    def spread(self) -> float:
        """The standard deviation."""
        return math.sqrt(max(0.0, self.squares / self.count - (self.total / self.count) ** 2))


def is_uneven(inputs: Iterable[Seen]) -> bool:
    """Whether a step that holds all values takes those of an input away: the noise of a step s is s / sqrt(12)."""
    several = list(inputs)
    if len(several) < 2 or not all(math.isfinite(tensor.squares) for tensor in several):
        return False
    step = _step(min(tensor.low for tensor in several), max(tensor.high for tensor in several))
    return any(
        step >= LEAST_RATIO * _step(tensor.low, tensor.high)
        and 20 * math.log10(tensor.spread * math.sqrt(12) / step) < LEAST_DECIBELS
        for tensor in several
        if tensor.spread > 0
    )


def _step(low: float, high: float) -> float:
    return (max(high, 0.0) - min(low, 0.0)) / _LEVELS
