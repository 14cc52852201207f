"""A trial: the case without a cause, and the share of its time, or of its output error, that is gone then; pure.

The error of an example is the squared distance of its outputs from fp32's. A share of it is a ratio of means over the
same examples, with the standard error of a ratio estimator and Student's t (Cochran, Sampling Techniques, 3rd ed. 1977,
section 6.4). Every example counts, so that a share is known from far fewer of them than a change of top1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from qbench.explain.causes.base import Counterfactual
from qbench.measure.paired_difference import LEVEL, PairedDifference, quantile_of_t
from qbench.stats.interval_type import Interval

Array = NDArray[np.float64]
SAME_ARTIFACT = "it gives the same artifact, byte by byte"
LEAST_EXAMPLES = 8  # of fewer, no limits are told
# Standard deviation of a log ratio from one race to the next, later and built anew, which no number of processes of one
# race shows. With it 72 of 83 gains that were measured again lay within the limits of the first, without it 51
# (tests/benchmarks/explain_error.py, whose last line counts them).
RACE_SPREAD = 0.02


class Saving(Protocol):
    """What is gone of a case's time, or of its error."""

    @property
    def share(self) -> float:
        """The share that is gone (1: all of it, below 0: there is more)."""

    @property
    def lasts(self) -> bool:
        """Whether something is gone in another trial, too, as far as the limits tell."""

    def interval(self) -> Interval:
        """What a reader is shown, with limits: how many times as fast, or the share of the error that is gone."""

    def p_nothing(self) -> float:
        """The one-sided p-value of "nothing is gone"."""


@dataclass(frozen=True, kw_only=True)
class SavedTime:
    """``difference``: ln(time without the cause / time with it), both for one example, with the limits of its race;
    ``lasting``: with those that it has for whoever measures it in another one."""

    difference: PairedDifference
    lasting: PairedDifference

    @property
    def share(self) -> float:
        """The share of the time."""
        return 1 - math.exp(self.difference.value)

    @property
    def lasts(self) -> bool:
        """Whether the limits for another race are below the case's time."""
        return self.lasting.limits()[1] < 0.0

    def interval(self) -> Interval:
        """How many times as fast as the case, with 95 % limits for another race."""
        low, high = self.lasting.limits()
        return Interval(value=math.exp(-self.lasting.value), low=math.exp(-high), high=math.exp(-low))

    def p_nothing(self) -> float:
        """In the race that it was measured in."""
        return self.difference.p_not_below(0.0)


def save_time(difference: PairedDifference) -> SavedTime:
    """What one race shows; the freedom for another one after Satterthwaite, Biometrics Bulletin 2 (1946), 110-114."""
    variance = difference.error**2 + RACE_SPREAD**2
    freedom = difference.freedom * (variance / difference.error**2) ** 2
    lasting = replace(difference, error=math.sqrt(variance), freedom=freedom, unseen=0.0, seen_freedom=None)
    return SavedTime(difference=difference, lasting=lasting)


@dataclass(frozen=True, kw_only=True)
class RemovedError:
    """The ``share`` of the error that is gone, with its standard ``error`` over ``n`` examples."""

    share: float
    error: float
    n: int
    lasts: bool = True  # another draw of the calibration examples is what tells: ``Evaluated.least``

    def interval(self, level: float = LEVEL) -> Interval:
        """The share with its two-sided limits."""
        if self.n < LEAST_EXAMPLES:
            return Interval(value=self.share, low=None, high=None)
        half = quantile_of_t((1 + level) / 2, self.n - 1) * self.error
        return Interval(value=self.share, low=self.share - half, high=self.share + half)

    def p_nothing(self) -> float:
        """Over examples."""
        from scipy.special import stdtr

        if self.n < LEAST_EXAMPLES:
            return 1.0
        if self.error == 0:
            return 0.0 if self.share > 0 else 1.0
        return float(stdtr(self.n - 1, -self.share / self.error))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A counterfactual that was tried: what it saves; None with the ``reason`` where it could not be built, measured or
    evaluated. ``metric_change``: against the case, in the metric's own scale, where that was looked at. ``beyond``:
    case and counterfactual had other changes already."""

    counterfactual: Counterfactual
    saving: Saving | None = None
    metric_change: Interval | None = None
    reason: str | None = None
    beyond: bool = False

    @property
    def share(self) -> float:
        """The share that is gone; of a trial that could be made."""
        assert self.saving is not None
        return self.saving.share

    @property
    def interval(self) -> Interval | None:
        """What a reader is shown of it."""
        return None if self.saving is None else self.saving.interval()


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What each counterfactual gave."""

    trials: tuple[Trial, ...]

    @property
    def least(self) -> float:
        """The share that a cause must take away at least, however surely something is gone."""
        return 0.0


def square_errors(outputs: NDArray[np.generic], fp32: NDArray[np.generic]) -> Array:
    """The squared distance of each example's outputs from fp32's; (n, ...) -> (n,)."""
    difference = np.asarray(outputs, dtype=np.float64) - np.asarray(fp32, dtype=np.float64)
    squares: Array = (difference.reshape(len(difference), -1) ** 2).sum(axis=1)
    return squares


def compare_errors(case: Array, other: Array) -> RemovedError | None:
    """The share of the case's error that is gone in ``other``, both by example; None where the case has none."""
    total = float(case.mean())
    if not total > 0 or not math.isfinite(total) or not bool(np.isfinite(other).all()):
        return None
    removed = case - other
    share = float(removed.mean()) / total
    residuals = removed - share * case
    n = len(case)
    variance = float((residuals**2).sum()) / max(1, n - 1)
    return RemovedError(share=share, error=math.sqrt(variance / n) / total, n=n)


def signal_to_noise_db(errors: Array, fp32: NDArray[np.generic]) -> float | None:
    """Ten times the decimal logarithm of fp32's energy over the error's; None where either is 0."""
    signal = float((np.asarray(fp32, dtype=np.float64) ** 2).sum())
    noise = float(errors.sum())
    return 10 * math.log10(signal / noise) if signal > 0 and noise > 0 else None
