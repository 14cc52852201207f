"""Limits on the mean of values of unknown shape, such as errors of examples, of which a few may be huge; pure.

The t interval takes the mean for normal: with lognormal losses and 100 examples it passes 10 to 20 % of models on the
margin. Here the values are weighted at random, as the Bayesian bootstrap does, together with one value that was not
seen: for the lower limit the lowest that there may be, for the upper limit the highest. The limit is the 5 % point of
that weighted mean. Of zeros and ones it is the exact limit (Clopper-Pearson), so rare large values are allowed for as
rare events are. The weighted mean's distribution is not drawn but computed, by saddlepoint.

Where nobody knows the lowest or highest, it is read off the tail: beyond the last value by ``BEYOND`` times the
distance from the last to the fourth. A tail of which the sample shows nothing cannot be read: ``UNSEEN`` is the number
of values from which on what strikes 1 in 100 is seen 19 times in 20.

Sources: Gaffke, Mathematical Methods of Statistics 14 (2005), 451-467; Phan, Thomas and Learned-Miller, ICML (2021),
8567-8576; Lugannani and Rice, Advances in Applied Probability 12 (1980), 475-490. Coverage:
``tests/benchmarks/interval_coverage.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qbench.stats.interval_type import Interval

Floats = NDArray[np.float64]
BEYOND, OF_TAIL = 2.0, 4
UNSEEN = 299  # 0.99 ** 299 < 0.05
_NO_SQUARE = 1e-150  # values that differ by less count as equal: a float holds no square of it


@dataclass(frozen=True, kw_only=True)
class WeightedMean:
    """Distinct ``values`` and how often each was seen (``counts``); ``lowest`` and ``highest`` are what one more value
    may be."""

    values: Floats
    counts: Floats
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: ArrayLike, lowest: float | None = None, highest: float | None = None) -> WeightedMean:
        """That of a sample; ``lowest`` and ``highest`` None: not known, so read off its tails."""
        distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
        ordered = np.repeat(distinct[:OF_TAIL], counts[:OF_TAIL])
        falling = np.repeat(distinct[-OF_TAIL:], counts[-OF_TAIL:])[::-1]
        low = _look_beyond(ordered) if lowest is None else min(lowest, float(distinct[0]))
        high = _look_beyond(falling) if highest is None else max(highest, float(distinct[-1]))
        return cls(values=distinct, counts=counts.astype(np.float64), lowest=low, highest=high)

    @property
    def mean(self) -> float:
        """Of the values that were seen."""
        return float((self.counts * self.values).sum() / self.counts.sum())

    def interval(self, level: float) -> Interval:
        """The mean with two-sided limits at ``level``; a limit is None where there is nothing to read it from: all
        values are equal, and so is what one more may be."""
        tail = (1 - level) / 2
        low, high = self._find_limit(self.lowest, tail), self._find_limit(self.highest, 1 - tail)
        mean = self.mean
        return Interval(
            value=mean,
            low=None if low is None else min(low, mean),
            high=None if high is None else max(high, mean),
        )

    def p_below(self, threshold: float) -> float:
        """The one-sided p-value against "the true mean is not below the threshold"."""
        return 1 - self._chance_below(threshold, self.highest)

    def _find_limit(self, unseen: float, share: float) -> float | None:
        from scipy.optimize import brentq

        low, high = min(unseen, float(self.values[0])), max(unseen, float(self.values[-1]))
        if high - low <= max(1e-12 * max(abs(low), abs(high)), _NO_SQUARE):
            return None
        side, mean = (-1 if share < 0.5 else 1), self.mean
        # One side of the bracket from the spread, outwards until it holds the limit: far out each step costs more.
        reach = 2 * self._error(unseen)
        while low < mean + side * reach < high and (self._chance_below(mean + side * reach, unseen) > share) == (
            side < 0
        ):
            reach *= 2
        end = min(high, max(low, mean + side * reach))
        first, last = (end, high) if side < 0 else (low, end)
        return float(
            brentq(lambda mean: self._chance_below(mean, unseen) - share, first, last, xtol=1e-6 * abs(end - mean))
        )

    def _error(self, unseen: float) -> float:
        """The standard error of the mean, ``unseen`` among the values."""
        apart = np.append(self.values, unseen) - self.mean
        squares = float((np.append(self.counts, 1.0) * apart * apart).sum())
        return math.sqrt(squares) / float(self.counts.sum())

    def _chance_below(self, mean: float, unseen: float) -> float:
        """The probability that the weighted mean, ``unseen`` among the values, is at most ``mean``: that a sum of
        exponential variables times (value - mean) is at most 0."""
        apart = np.append(self.values, unseen) - mean
        counts = np.append(self.counts, 1.0)
        least, greatest = float(apart.min()), float(apart.max())
        if least >= 0 or greatest <= 0:
            return float(least < 0)
        size = max(-least, greatest)  # in units of which squares neither vanish nor overflow
        return _chance_of_negative(apart / size, counts, size / least, size / greatest)


def _look_beyond(tail: Floats) -> float:
    """What may lie beyond the first of ``tail``, which goes inwards."""
    last = float(tail[0])
    return last + BEYOND * (last - float(tail[min(OF_TAIL, len(tail)) - 1]))


def _chance_of_negative(apart: Floats, counts: Floats, least: float, most: float) -> float:
    """P(sum of ``counts`` exponential variables times ``apart`` <= 0) by Lugannani and Rice; the saddlepoint lies
    between ``least`` and ``most``."""
    from scipy.special import ndtr

    tilt = _solve_saddlepoint(apart, counts, least, most)
    share = apart / (1 - tilt * apart)
    weighted = counts * share
    # Sums of products: a dot product starts the threads of the linear algebra, which wait for each other here.
    logs = float((counts * np.log1p(-tilt * apart)).sum())
    second, third = float((weighted * share).sum()), 2 * float((weighted * share * share).sum())
    signed = math.copysign(math.sqrt(max(0.0, 2 * logs)), tilt)
    if abs(signed) < 1e-4:
        return 0.5 + third / (second * math.sqrt(second)) / (6 * math.sqrt(2 * math.pi))
    density = math.exp(-signed * signed / 2) / math.sqrt(2 * math.pi)
    chance = float(ndtr(signed)) + density * (1 / signed - 1 / (tilt * math.sqrt(second)))
    return min(1.0, max(0.0, chance))


def _solve_saddlepoint(apart: Floats, counts: Floats, least: float, most: float) -> float:
    """The tilt at which the tilted sum's mean is 0: Newton's steps, halving where one leaves the bracket."""
    tilt = 0.0
    for _ in range(100):
        share = apart / (1 - tilt * apart)
        weighted = counts * share
        slope = float(weighted.sum())
        least, most = (least, tilt) if slope > 0 else (tilt, most)
        step = slope / float((weighted * share).sum())
        if abs(step) <= 1e-10 * abs(tilt) or step == 0:
            break
        tilt = tilt - step if least < tilt - step < most else (least + most) / 2
    return tilt
