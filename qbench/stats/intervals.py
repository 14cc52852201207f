"""Estimates and their intervals: pure, thin over scipy, each with its source.

    latency     quantile_interval, exp
    scores      proportion, clopper_pearson, mean
    changes     paired_delta, paired_proportions, paired_bootstrap, difference

A limit that the samples cannot support is None, never a guess: an interval of zero width is such a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qbench.stats.interval_type import Interval

Floats = NDArray[np.float64]


def normal_quantile(level: float) -> float:
    """z such that a two-sided normal interval of ``level`` reaches z standard errors: 1.96 at 0.95."""
    from scipy.special import ndtri

    return float(ndtri((1 + level) / 2))


def _as_floats(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64).ravel()
    if array.size == 0:
        raise ValueError("no values: an estimate needs at least one")
    if not np.isfinite(array).all():
        raise ValueError("values must be finite")
    return array


# --- latency -----------------------------------------------------------------------------------------------


def quantile_interval(samples: ArrayLike, q: float, level: float = 0.95) -> Interval | None:
    """The sample quantile with its distribution-free limits, or None where n supports no two-sided interval.

    The limits are order statistics, exact by the binomial distribution of how many samples lie below the true
    quantile (Conover, Practical Nonparametric Statistics, 3.2). At 95 % that takes 6 samples for the median, 36 for p90
    and 368 for p99. Seconds in, seconds out. The samples are taken as independent, which calls in a closed loop are
    not: ``measure.percentiles`` is for these.
    """
    from scipy.special import bdtr, bdtrc

    array = np.sort(_as_floats(samples))
    n, tail = array.size, (1 - level) / 2
    counts = np.arange(n)
    # How many order statistics are too low, and too high, to be a limit.
    below = int(np.count_nonzero(bdtr(counts, n, q) < tail))
    above = int(np.count_nonzero(bdtrc(counts, n, q) <= tail))
    if below == 0 or above == 0:
        return None
    return Interval(value=float(np.quantile(array, q)), low=float(array[below - 1]), high=float(array[n - above]))


def effective_size(values: ArrayLike) -> float | None:
    """How many independent values a time series is worth: n / (1 + 2 sum of its autocorrelations).

    The sum ends at the first pair of lags whose sum is not positive (Geyer, Statistical Science 7 (1992), 473-483).
    Between 1 and n; None for fewer than 8 values. A constant series is worth all its values.
    """
    array = _as_floats(values)
    n = array.size
    if n < 8:
        return None
    centred = array - array.mean()
    spectrum = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    correlation = np.fft.irfft(spectrum)[:n]
    if correlation[0] <= 0:
        return float(n)
    correlation = correlation / correlation[0]
    pairs = correlation[1 : n - n % 2 : 2][: (n - 1) // 2] + correlation[2:n:2][: (n - 1) // 2]
    ends = np.flatnonzero(pairs <= 0)
    total = float(pairs[: ends[0]].sum()) if ends.size else float(pairs.sum())
    return float(min(n, max(1.0, n / (1 + 2 * max(0.0, total)))))


def exp(log: Interval) -> Interval:
    """The ratio whose natural logarithm is ``log``, with its limits."""
    low, high = (None if limit is None else math.exp(limit) for limit in (log.low, log.high))
    return Interval(value=math.exp(log.value), low=low, high=high)


# --- scores ------------------------------------------------------------------------------------------------


def proportion(successes: int, n: int, level: float = 0.95) -> Interval:
    """successes / n with the Wilson score interval.

    Wilson, since its coverage is close to nominal on average at every n and its width is never zero, while
    Clopper-Pearson is wider than it says (Brown, Cai, DasGupta, Statistical Science 16 (2001), 101-133).
    """
    _require_proportion(successes, n)
    square = normal_quantile(level) ** 2
    centre = (successes + square / 2) / (n + square)
    half = math.sqrt(square) / (n + square) * math.sqrt(successes * (n - successes) / n + square / 4)
    return _proportion(successes, n, centre - half, centre + half)


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> Interval:
    """successes / n with the exact interval, which never covers less than ``level``: for published error rates (Clopper
    and Pearson, Biometrika 26 (1934), 404-413; its limits are quantiles of beta distributions)."""
    from scipy.special import betaincinv

    _require_proportion(successes, n)
    tail = (1 - level) / 2
    low = float(betaincinv(successes, n - successes + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return _proportion(successes, n, low, high)


def _require_proportion(successes: int, n: int) -> None:
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} of {n} is not a proportion")


def _proportion(successes: int, n: int, low: float, high: float) -> Interval:
    """successes / n with limits around it, from 0 to 1: rounding may put one a last digit past the estimate when
    nothing or everything succeeded."""
    value = successes / n
    return Interval(value=value, low=min(max(0.0, low), value), high=max(min(1.0, high), value))


def mean(values: ArrayLike, level: float = 0.95) -> Interval:
    """The mean: of zeros and ones with Wilson limits, else with limits that allow for rare large values.

    The limits are None for one value and where all values are equal, since nothing is known of the spread.
    """
    array = _as_floats(values)
    if is_binary(array):
        return proportion(int(array.sum()), array.size, level)
    return _limit_mean(array, level)


def _limit_mean(array: Floats, level: float) -> Interval:
    from qbench.stats.mean_limits import WeightedMean

    return WeightedMean.of(array).interval(level)


def t_interval(array: Floats, level: float) -> Interval:
    """The mean with Student's t limits, None where there is no spread to read them from."""
    from scipy.special import stdtrit

    value = float(array.mean())
    error = float(array.std(ddof=1)) / math.sqrt(array.size) if array.size > 1 else 0.0
    # A spread of rounding errors is no spread: the values are equal.
    if error <= 1e-12 * max(abs(value), float(np.abs(array).max())):
        return Interval(value=value)
    half = float(stdtrit(array.size - 1, (1 + level) / 2)) * error
    return Interval(value=value, low=value - half, high=value + half)


def is_binary(array: Floats) -> bool:
    """Whether all values are 0 or 1: correct or not."""
    return bool(np.isin(array, (0.0, 1.0)).all())


# --- changes -----------------------------------------------------------------------------------------------


def paired_delta(contender: ArrayLike, baseline: ArrayLike, level: float = 0.95) -> Interval:
    """The mean of contender - baseline over the same examples, with limits.

    ``contender``, ``baseline``: one float per example, same order. Zeros and ones (correct or not) get the score
    interval of ``paired_proportions``; anything else limits on the mean of the differences that allow for rare large
    ones, None where they are all equal.
    """
    new, old = paired(contender, baseline)
    if is_binary(new) and is_binary(old):
        return paired_proportions(int((new > old).sum()), int((new < old).sum()), new.size, level)
    return _limit_mean(new - old, level)


def paired(contender: ArrayLike, baseline: ArrayLike) -> tuple[Floats, Floats]:
    """Both as float64 of one length; raises ``ValueError`` where they are not."""
    new, old = _as_floats(contender), _as_floats(baseline)
    if new.size != old.size:
        raise ValueError(f"paired values need the same examples: {new.size} and {old.size}")
    return new, old


def paired_proportions(gained: int, lost: int, n: int, level: float = 0.95) -> Interval:
    """(gained - lost) / n with Tango's score interval for paired proportions.

    The t interval of the same differences has zero width when nothing flips, and passes too often when little
    does: at 200 examples, 3 % flips and a true loss equal to the margin it passes 9.6 %, this one 3.7 %.
    Source: Tango, Statistics in Medicine 17 (1998), 891-908; Fagerland et al., ibid. 33 (2014), 2850-2875.
    """
    from scipy.optimize import brentq

    check_counts(gained, lost, n)
    z = normal_quantile(level)
    value = (gained - lost) / n

    def limit(sign: float, end: float) -> float:
        def excess(delta: float) -> float:
            return score_statistic(gained, lost, n, delta) - sign * z

        return float(end if excess(end) * sign < 0 else brentq(excess, value, end, xtol=1e-12))

    edge = 1.0 - 1e-12  # the statistic has no variance at exactly -1 and 1
    low = -1.0 if value == -1 else limit(+1.0, -edge)
    high = 1.0 if value == 1 else limit(-1.0, edge)
    return Interval(value=value, low=low, high=high)


def check_counts(gained: int, lost: int, n: int) -> None:
    """Raises ``ValueError`` for counts that no n examples can give."""
    if min(gained, lost) < 0 or n < 1 or gained + lost > n:
        raise ValueError(f"{gained} gained and {lost} lost of {n} is no paired table")


def score_statistic(gained: float, lost: float, n: float, delta: float) -> float:
    """The score statistic of H0: the true difference is ``delta``; falls as ``delta`` rises."""
    half = -gained - lost + (2 * n - gained + lost) * delta
    root = max(0.0, half * half + 8 * n * lost * delta * (1 - delta))
    # The likelihood's estimate of the share that is lost, given delta.
    share = (math.sqrt(root) - half) / (4 * n)
    variance = n * (2 * share + delta * (1 - delta))
    distance = gained - lost - n * delta
    if variance <= 0:
        return 0.0 if distance == 0 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def paired_bootstrap(
    function: Callable[[NDArray[np.intp]], float],
    n: int,
    *,
    seed: int = 0,
    level: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """``function`` of all n examples, with percentile limits over resampled examples.

    ``function`` takes positions of examples (length n, repeats allowed) and returns a score or the difference of
    two scores on just those: resampling both together is what pairs them. For metrics that are no mean over
    examples, such as F1. Seeded. None limits where every resample gives the same.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    if n < 1:
        raise ValueError("no values: an estimate needs at least one")
    value = float(function(np.arange(n)))
    rng = np.random.default_rng(seed)
    drawn = np.array([function(rng.integers(0, n, size=n)) for _ in range(resamples)], dtype=np.float64)
    if not np.isfinite(drawn).all() or np.ptp(drawn) == 0:
        return Interval(value=value)
    low, high = np.quantile(drawn, ((1 - level) / 2, (1 + level) / 2))
    return Interval(value=value, low=min(float(low), value), high=max(float(high), value))


# Fewer changed examples than this are few: of 30, resamples draw their number well enough.
FEW_CHANGED = 30


def widen_for_unseen(delta: Interval, n: int, size: float, level: float) -> Interval:
    """The limits of a change, wide enough for changes that so few examples need not show.

    Where none of n examples changes, up to z^2 / (n + z^2) of all may, as the score interval of a share says, and an
    example that changes is taken to lose its share of the score, ``size``. Resamples of ``FEW_CHANGED``, too, show
    nothing of those that were not drawn.
    """
    z2 = normal_quantile(level) ** 2
    reach = z2 / (n + z2) * size
    low, high = (delta.value if limit is None else limit for limit in (delta.low, delta.high))
    return Interval(value=delta.value, low=min(low, delta.value - reach), high=max(high, delta.value + reach))


def difference(a: Interval, b: Interval) -> Interval:
    """a - b of two independent estimates, with limits from those of each (None where one has none).

    Source: MOVER, Zou and Donner, Statistics in Medicine 27 (2008), 1693-1702.
    """
    value = a.value - b.value
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Interval(value=value)
    return Interval(
        value=value,
        low=value - math.hypot(a.value - a.low, b.high - b.value),
        high=value + math.hypot(a.high - a.value, b.value - b.low),
    )
