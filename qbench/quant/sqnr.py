"""How far outputs lie from those that they stand for, in decibels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MOST_DECIBELS = 100.0


def measure_sqnr(expected: Array, outputs: Array) -> float:
    """The signal-to-quantization-noise ratio, 10 log10(sum expected^2 / sum (expected - outputs)^2), within
    ``MOST_DECIBELS`` on both sides. The most for equal outputs, also where both are 0 everywhere; the least where the
    shapes differ, or where one of the two alone is NaN or infinite."""
    finite = np.isfinite(expected)
    if expected.shape != outputs.shape or not np.array_equal(finite, np.isfinite(outputs)):
        return -MOST_DECIBELS
    values = expected[finite].astype(np.float64)
    signal, noise = float(np.square(values).sum()), float(np.square(values - outputs[finite]).sum())
    most = 10 ** (MOST_DECIBELS / 10)
    if noise * most <= signal:
        return MOST_DECIBELS
    return -MOST_DECIBELS if signal * most <= noise else float(10 * np.log10(signal / noise))
