"""Two estimates of the same values, each of half of the examples: what of their mean is not chance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def shrink_mean(first: Array, second: Array) -> Array:
    """The mean of two independent estimates, times the share of its power that is not chance, 0 to 1: their product has
    the power of the true values as its mean, the square of their mean has that of the chance besides."""
    mean: Array = (first + second) / 2
    power = float(np.square(mean).sum())
    return mean * (np.clip(np.vdot(first, second) / power, 0.0, 1.0) if power else 0.0)
