"""How far outputs lie from those that they stand for, in decibels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
MOST_DECIBELS = 100.0
_PART = 2**18  # values at a time: in float64, three arrays of all would be the most memory of a build


def measure_sqnr(expected: Array, outputs: Array) -> float:
    """The signal-to-quantization-noise ratio, 10 log10(sum expected^2 / sum (expected - outputs)^2), within
    ``MOST_DECIBELS`` on both sides. The most for equal outputs, also where both are 0 everywhere; the least where the
    shapes differ, or where one of the two alone is NaN or infinite."""
    return measure_sqnr_of([(expected, outputs)])


def measure_sqnr_of(pairs: Iterable[tuple[Array, Array]]) -> float:
    """The same of all batches together, each what is expected and the outputs; they need not all be there at once."""
    signal = noise = 0.0
    for expected, outputs in pairs:
        if expected.shape != outputs.shape:
            return -MOST_DECIBELS
        values, others = expected.reshape(-1), outputs.reshape(-1)
        for start in range(0, values.size, _PART):
            part, other = values[start : start + _PART], others[start : start + _PART]
            finite = np.isfinite(part)
            if not np.array_equal(finite, np.isfinite(other)):
                return -MOST_DECIBELS
            exact = part[finite].astype(np.float64)
            signal += float(np.square(exact).sum())
            noise += float(np.square(exact - other[finite]).sum())
    most = 10 ** (MOST_DECIBELS / 10)
    if noise * most <= signal:
        return MOST_DECIBELS
    return -MOST_DECIBELS if signal * most <= noise else float(10 * np.log10(signal / noise))
