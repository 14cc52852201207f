"""The whole range: nothing is clipped."""

from __future__ import annotations

import math
from typing import ClassVar

from qbench.quant.calibrators.base import Array, Calibrator
from qbench.quant.calibrators.extremes import find_extremes


class MinMax(Calibrator):
    """The least and the greatest value of all batches. Exact in every order and however they are cut.

    A batch may be given as its two ends alone.
    """

    name: ClassVar[str] = "minmax"

    def __init__(self, *, asymmetric: bool = True) -> None:
        super().__init__(asymmetric=asymmetric)
        self._low, self._high = math.inf, -math.inf

    def add(self, values: Array) -> None:
        """Takes a batch of any shape."""
        _, low, high = find_extremes(values)
        self._low, self._high = min(self._low, low), max(self._high, high)

    def range(self) -> tuple[float, float]:
        """The ends. Raises ``ValueError`` before the first value."""
        if self._low > self._high:
            raise ValueError("no value was seen")
        return self._low, self._high
