"""The average range of an example: one outlier in one example moves it little."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from qbench.quant.calibrators.base import Array, Calibrator
from qbench.quant.calibrators.extremes import find_extremes


class MovingAverage(Calibrator):
    """The mean of each example's least and of its greatest value; examples lie along the first axis, a batch of one
    axis or none is one example. ONNX Runtime's moving average of batches is the same at a batch size of one.

    Order and batches change the result by the rounding of a float64 sum.
    """

    name: ClassVar[str] = "moving_average"

    def __init__(self, *, asymmetric: bool = True) -> None:
        super().__init__(asymmetric=asymmetric)
        self._low = self._high = 0.0
        self._examples = 0

    def add(self, values: Array) -> None:
        """Takes a batch of shape (examples, ...)."""
        row, _, _ = find_extremes(values)
        if not row.size:
            return
        examples = row.reshape(values.shape[0] if values.ndim > 1 else 1, -1)
        self._low += math.fsum(np.min(examples, axis=1).tolist())
        self._high += math.fsum(np.max(examples, axis=1).tolist())
        self._examples += len(examples)

    def range(self) -> tuple[float, float]:
        """The mean ends. Raises ``ValueError`` before the first value."""
        if not self._examples:
            raise ValueError("no value was seen")
        return self._low / self._examples, self._high / self._examples
