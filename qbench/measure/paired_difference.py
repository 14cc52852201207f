"""How much longer one case takes than another, from rounds that both ran in, with what generations of processes say of
its uncertainty; pure.

One generation of processes says little: ratios of equal artifacts differ by about 2 % from one process to the next.
From ``ENOUGH`` generations on the interval is Student's t over their medians. Fewer are completed by what is known of
processes (``machine/process_spread``), worth ``FREEDOM`` degrees of freedom; such a difference is ``coarse``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qbench.machine.process_spread import FREEDOM, RATIO_SPREAD
from qbench.measure.pairing import Minima, PairedBlocks, pair_blocks, pair_samples
from qbench.measure.samples import Samples
from qbench.stats.interval_type import Interval

LEVEL = 0.95
ENOUGH = 3
# Standard deviation of ln(case / other) from one block to the next within a generation.
BLOCK_SPREAD, BLOCK_FREEDOM = 0.015, 6
# The error of "shown to be better than fp32", one side, shared by all variants that were tried: the decision's test,
# and what the race goes on for.
SHOWN_ERROR = 0.025
UNSEEN_FREEDOM = 30  # what the spreads that no block shows are worth: they were measured, on few machines
LEAST_ERROR = 1e-6  # equal medians show no spread; clocks and caches do not repeat to the millionth


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """ln(case / other): its mean over ``generations``, the standard ``error`` of that mean with its degrees of
    ``freedom``, and whether the error is mostly what is known of processes in general (``coarse``). ``unseen``: the
    part of the error that no number of generations narrows; ``seen_freedom``: degrees of freedom of the rest (None: as
    of all)."""

    value: float
    error: float
    freedom: float
    generations: int
    coarse: bool
    unseen: float = 0.0
    seen_freedom: float | None = None

    def limits(self, level: float = LEVEL) -> tuple[float, float]:
        """The two-sided limits of ln(case / other)."""
        half = max(quantile_of_t((1 + level) / 2, self.freedom) * self.error, self.half_width_seen(level))
        return self.value - half, self.value + half

    def half_width_seen(self, level: float = LEVEL) -> float:
        """Half the distance of the limits, by the part of the error that further generations would narrow."""
        return quantile_of_t((1 + level) / 2, self._seen_freedom) * self._seen_error

    @property
    def _seen_error(self) -> float:
        return max(LEAST_ERROR, math.sqrt(max(0.0, self.error**2 - self.unseen**2)))

    @property
    def _seen_freedom(self) -> float:
        return self.freedom if self.seen_freedom is None else self.seen_freedom

    def p_not_below(self, threshold: float) -> float:
        """The one-sided p-value of "ln(case / other) is not below the threshold"."""
        from scipy.special import stdtr

        beyond = self.value - threshold
        of_all, of_seen = beyond / self.error, beyond / self._seen_error
        return float(max(stdtr(self.freedom, of_all), stdtr(self._seen_freedom, of_seen)))

    def ratio(self, level: float = LEVEL) -> Interval:
        """Time of the case over time of the other, with limits."""
        low, high = self.limits(level)
        return Interval(value=math.exp(self.value), low=math.exp(low), high=math.exp(high))


def compare_times(
    case: Samples, other: Samples, calm_ns: float | None = None, *, alike: bool = False
) -> PairedDifference | None:
    """How much longer ``case`` takes than ``other``; None where they never ran in one round. ``calm_ns``: what the
    canary takes where nobody shares the core; ``alike``: both are int8, or both fp32."""
    return average_blocks(pair_samples(case, other, calm_ns, alike=alike))


def compare_minima(case: Minima, other: Minima, *, alike: bool = False) -> PairedDifference | None:
    """The same of the fastest calls of their blocks."""
    return average_blocks(pair_blocks(case, other, alike=alike))


def average_blocks(blocks: PairedBlocks) -> PairedDifference | None:
    """The difference that paired blocks show; None where there are none."""
    return difference_over_generations(blocks.log_ratios, unseen=blocks.unseen)


def difference_over_generations(
    log_ratios: Mapping[int, NDArray[np.float64]], *, unseen: float = 0.0
) -> PairedDifference | None:
    """The difference that the log ratios of blocks, by generation, show; None where there is none. ``unseen``: the
    standard error that no spread of them shows."""
    series = [values for values in log_ratios.values() if len(values)]
    if not series:
        return None
    medians = np.asarray([float(np.median(values)) for values in series])
    count = len(medians)
    squares = float(((medians - medians.mean()) ** 2).sum())
    coarse = count < ENOUGH
    freedom: float
    if coarse:
        freedom = FREEDOM + count - 1
        expected = RATIO_SPREAD**2 + float(np.mean([variance_of_median(values) for values in series]))
        variance = (FREEDOM * expected + squares) / freedom
    else:
        freedom = count - 1
        variance = squares / freedom
    error, worth = add_unseen(variance / count, freedom, unseen)
    return PairedDifference(
        value=float(medians.mean()),
        error=max(LEAST_ERROR, error),
        freedom=worth,
        generations=count,
        coarse=coarse,
        unseen=unseen,
        seen_freedom=freedom,
    )


def add_unseen(variance: float, freedom: float, unseen: float) -> tuple[float, float]:
    """The standard error of a mean with this ``variance`` and its degrees of freedom, once the standard error that no
    spread shows is added (Satterthwaite, Biometrics Bulletin 2 (1946), 110-114)."""
    together = variance + unseen**2
    if not unseen:
        return math.sqrt(variance), freedom
    return math.sqrt(together), together**2 / (variance**2 / freedom + unseen**4 / UNSEEN_FREEDOM)


def variance_of_median(log_ratios: NDArray[np.float64]) -> float:
    """The variance of the median of the blocks of one generation, with what is known of blocks in general: pi / 2 of
    the mean's, as for a normal distribution."""
    squares = float(((log_ratios - np.mean(log_ratios)) ** 2).sum())
    freedom = BLOCK_FREEDOM + len(log_ratios) - 1
    return math.pi / 2 * (BLOCK_FREEDOM * BLOCK_SPREAD**2 + squares) / freedom / len(log_ratios)


def quantile_of_t(share: float, freedom: float) -> float:
    """The value that a t with so many degrees of freedom stays below in that share of draws."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, share))
