"""Which share of an int8 variant's output error a change takes away; pure.

The error of an example is the squared distance of its outputs from fp32's. A share is a ratio of means over the same
examples, with the standard error of a ratio estimator and Student's t (Cochran, Sampling Techniques, 3rd ed. 1977,
section 6.4). Every example counts, so that a share is known from far fewer of them than a change of top1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qbench.measure.paired_difference import LEVEL, quantile_of_t
from qbench.stats.interval_type import Interval

Array = NDArray[np.float64]
LEAST_EXAMPLES = 8  # of fewer, no limits are told


@dataclass(frozen=True, kw_only=True)
class RemovedShare:
    """``value``: the share of the error that is gone (1: all of it, below 0: there is more), with its standard
    ``error`` over ``n`` examples."""

    value: float
    error: float
    n: int

    def interval(self, level: float = LEVEL) -> Interval:
        """The share with its two-sided limits."""
        if self.n < LEAST_EXAMPLES:
            return Interval(value=self.value, low=None, high=None)
        half = quantile_of_t((1 + level) / 2, self.n - 1) * self.error
        return Interval(value=self.value, low=self.value - half, high=self.value + half)

    def p_not_positive(self) -> float:
        """The one-sided p-value of "nothing is taken away"."""
        from scipy.special import stdtr

        if self.n < LEAST_EXAMPLES:
            return 1.0
        if self.error == 0:
            return 0.0 if self.value > 0 else 1.0
        return float(stdtr(self.n - 1, -self.value / self.error))


def square_errors(outputs: NDArray[np.generic], fp32: NDArray[np.generic]) -> Array:
    """The squared distance of each example's outputs from fp32's; (n, ...) -> (n,)."""
    difference = np.asarray(outputs, dtype=np.float64) - np.asarray(fp32, dtype=np.float64)
    squares: Array = (difference.reshape(len(difference), -1) ** 2).sum(axis=1)
    return squares


def compare_errors(case: Array, other: Array) -> RemovedShare | None:
    """The share of the case's error that is gone in ``other``, both by example; None where the case has none."""
    total = float(case.mean())
    if not total > 0 or not math.isfinite(total) or not bool(np.isfinite(other).all()):
        return None
    removed = case - other
    share = float(removed.mean()) / total
    residuals = removed - share * case
    n = len(case)
    variance = float((residuals**2).sum()) / max(1, n - 1)
    return RemovedShare(value=share, error=math.sqrt(variance / n) / total, n=n)


def signal_to_noise_db(errors: Array, fp32: NDArray[np.generic]) -> float | None:
    """Ten times the decimal logarithm of fp32's energy over the error's; None where either is 0."""
    signal = float((np.asarray(fp32, dtype=np.float64) ** 2).sum())
    noise = float(errors.sum())
    return 10 * math.log10(signal / noise) if signal > 0 and noise > 0 else None
