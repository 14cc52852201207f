"""Decisions from estimates: pass, fail or undecided; pure, thin over scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

from qbench import stats
from qbench.record import Interval

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]
# The error that the gate's rules share.
FAMILY_ERROR = 0.05
# The accuracy gate tests one side at 5 %, so it reads the two-sided 90 % interval.
NON_INFERIORITY_LEVEL = 0.90
# z(95 %) + z(80 %): a one-sided 5 % test that decides four times in five.
DECIDING_Z = 1.645 + 0.842
# Examples by which a count is brought nearer to what it is tested against: counts move in whole steps.
CONTINUITY = 0.25


def judge(interval: Interval, threshold: float, *, wanted: Literal["above", "below"]) -> Outcome:
    """PASS if the whole interval is on the wanted side of the threshold, FAIL if on the other; else undecided."""
    if interval.low is None or interval.high is None:
        return "INCONCLUSIVE"
    if interval.low > threshold:
        return "PASS" if wanted == "above" else "FAIL"
    if interval.high < threshold:
        return "FAIL" if wanted == "above" else "PASS"
    return "INCONCLUSIVE"


@dataclass(frozen=True, kw_only=True)
class NonInferiority:
    """Is the loss smaller than the margin? ``delta`` has two-sided limits at ``level``, better is positive;
    ``p_worse`` is the one-sided p-value of "worse than the margin"; ``examples`` would decide an undecided one."""

    outcome: Outcome
    delta: Interval
    level: float
    p_worse: float | None
    examples: int | None = None


def non_inferiority(
    contender: ArrayLike, baseline: ArrayLike, margin: float, level: float = NON_INFERIORITY_LEVEL
) -> NonInferiority:
    """The paired test of "worse by less than ``margin``" on per-example values where more is better.

    Zeros and ones are tested by ``non_inferiority_of_counts``; other values by the t test of their differences
    against -margin, straightened where they are skewed. PASS if the lower limit is above -margin, FAIL if the upper one
    is below it.
    """
    new, old = stats.paired(contender, baseline)
    if stats.is_binary(new) and stats.is_binary(old):
        return non_inferiority_of_counts(int((new > old).sum()), int((new < old).sum()), new.size, margin, level)
    change = new - old
    plain = stats.t_interval(change, level)
    if plain.low is None:
        return _decided(plain, margin, level, None, None)
    found = _Skewed.of(change)
    examples = examples_to_decide(float(change.std()) ** 2, plain.value, margin)
    return _decided(found.interval(level), margin, level, found.p_below(-margin), examples)


@dataclass(frozen=True, kw_only=True)
class _Skewed:
    """The mean of n values with Student's t, straightened by the values' skewness: errors of single examples have a
    long tail on the side of the losses, and the t test passes too many there (on the margin, with 500 examples whose
    losses are lognormal, 7.6 % where 5 % are meant; straightened 5.5 %). Without skewness it is the t test.

    Source: Hall, Journal of the Royal Statistical Society B 54 (1992), 221-228.
    """

    mean: float
    error: float
    freedom: int
    bend: float  # skewness / sqrt(n)

    @classmethod
    def of(cls, values: stats.Floats) -> _Skewed:
        from scipy.stats import skew

        return cls(
            mean=float(values.mean()),
            error=float(values.std(ddof=1)) / math.sqrt(values.size),
            freedom=values.size - 1,
            bend=float(skew(values)) / math.sqrt(values.size),
        )

    def interval(self, level: float) -> Interval:
        from scipy.special import stdtrit

        reach = float(stdtrit(self.freedom, (1 + level) / 2))
        low, high = (self.mean - self.error * self._bent(x) for x in (reach, -reach))
        return Interval(value=self.mean, low=min(low, self.mean), high=max(high, self.mean))

    def p_below(self, threshold: float) -> float:
        """The one-sided p-value against "the true mean is not below the threshold"."""
        from scipy.special import stdtr

        t, bend = (self.mean - threshold) / self.error, self.bend
        return float(stdtr(self.freedom, t + bend * t**2 / 3 + bend**2 * t**3 / 27 + bend / 6))

    def _bent(self, x: float) -> float:
        """The t at which the straightened statistic is x."""
        if abs(self.bend) < 1e-6:
            return x
        return 3 / self.bend * (math.cbrt(1 + self.bend * (x - self.bend / 6)) - 1)


def non_inferiority_of_counts(
    gained: int, lost: int, n: int, margin: float, level: float = NON_INFERIORITY_LEVEL
) -> NonInferiority:
    """The same for correct or not: ``gained`` and ``lost`` are the beneficial and harmful flips of n examples.

    Tango's score test in place of the t test, with a quarter of an example as continuity adjustment. Exact over all
    outcomes, for 176 settings (n 100 to 5,000, margins of 0.5 to 3 %, as many flips to 12 %), a model that is worse by
    exactly the margin passes at most 4.9 % of the time; without the adjustment at most 6.0 %, by the t test 9.6 %.
    Adjustments below the usual half: Laud, Pharmaceutical Statistics 16 (2017), 334-348.
    """
    from scipy.stats import norm

    stats.check_counts(gained, lost, n)
    delta = _score_interval(gained, lost, n, level)
    p_worse = float(norm.cdf(_score(gained, lost, n, -margin))) if 0 <= margin < 1 else None
    examples = _examples_of_counts(gained, lost, n, margin, level) if 0 <= margin < 1 else None
    return _decided(delta, margin, level, p_worse, examples)


def _score(gained: int, lost: int, n: int, delta: float) -> float:
    """``stats.score_statistic`` with the distance from H0 shortened by ``CONTINUITY``."""
    distance = abs(gained - lost - n * delta)
    if distance <= CONTINUITY:
        return 0.0
    return stats.score_statistic(gained, lost, n, delta) * (1 - CONTINUITY / distance)


def _score_interval(gained: int, lost: int, n: int, level: float) -> Interval:
    """(gained - lost) / n with the differences that ``_score`` does not reject."""
    from scipy.optimize import brentq

    z, value, edge = stats.normal_quantile(level), (gained - lost) / n, 1.0 - 1e-12

    def limit(sign: float) -> float:
        def excess(delta: float) -> float:
            return _score(gained, lost, n, delta) - sign * z

        end = -sign * edge  # at exactly -1 and 1 the statistic has no variance
        return float(end if excess(end) * sign < 0 else brentq(excess, value, end, xtol=1e-12))

    return Interval(value=value, low=-1.0 if value == -1 else limit(1.0), high=1.0 if value == 1 else limit(-1.0))


def from_interval(delta: Interval, margin: float, level: float = 0.95, n: int | None = None) -> NonInferiority:
    """The same from a stored interval of the change alone, better positive; 95 % is the stricter test.

    ``n``: the examples that it rests on; the variance of each is then read off the interval's width.
    """
    p_worse = p_beyond(delta, -margin, side="below", level=level)
    examples = None
    if n is not None and delta.low is not None and delta.high is not None:
        error = (delta.high - delta.low) / 2 / stats.normal_quantile(level)
        examples = examples_to_decide(error**2 * n, delta.value, margin)
    return _decided(delta, margin, level, p_worse, examples)


def _decided(
    delta: Interval, margin: float, level: float, p_worse: float | None, examples: int | None
) -> NonInferiority:
    outcome = judge(delta, -margin, wanted="above")
    return NonInferiority(
        outcome=outcome,
        delta=delta,
        level=level,
        p_worse=p_worse,
        examples=examples if outcome == "INCONCLUSIVE" else None,
    )


def examples_to_decide(spread: float, delta: float, margin: float) -> int | None:
    """About how many examples would decide four times in five, if the change stayed as it is; None if it sits on the
    margin.

    ``spread`` is the variance of the per-example change (for correct or not: the share of flips).
    n = spread x 2.49^2 / (margin + delta)^2.
    """
    room = abs(margin + delta)
    if margin <= 0 or room < 1e-9:
        return None
    return max(1, math.ceil(spread * DECIDING_Z**2 / room**2))


def _examples_of_counts(gained: int, lost: int, n: int, margin: float, level: float) -> int | None:
    """``examples_to_decide``, and at least as many as would decide with these very shares of flips: where there are few
    or none, their variance says too little."""
    about = examples_to_decide((gained + lost) / n, (gained - lost) / n, margin)
    statistic = abs(stats.score_statistic(gained, lost, n, -margin))
    if about is None or statistic in (0.0, math.inf):
        return about
    # k times the counts give sqrt(k) times the statistic, less the adjustment, which does not grow with them.
    needed = stats.normal_quantile(level) / statistic
    step = CONTINUITY / abs(gained - lost + n * margin)
    factor = ((needed + math.sqrt(needed**2 + 4 * step)) / 2) ** 2
    return max(about, math.ceil(n * factor))


def times_to_decide(p_value: float, rules: int) -> float:
    """How many times as many samples would let a FAIL with this one-sided p-value stand among so many rules four times
    in five, if the estimate stayed as it is: z grows with the root of the samples, and Holm asks for 5 % / rules.

    Infinite where the estimate is not beyond the threshold.
    """
    from scipy.special import ndtri

    reached = -float(ndtri(p_value)) if p_value > 0 else math.inf
    wanted = -float(ndtri(FAMILY_ERROR / rules)) + DECIDING_Z - 1.645
    return max(1.0, (wanted / reached) ** 2) if reached > 0 else math.inf


def mcnemar_midp(harmful: int, beneficial: int) -> float:
    """The mid-p value of McNemar's test of "no change": two-sided, 1.0 without flips.

    Source: Fagerland, Lydersen, Laake, BMC Medical Research Methodology 13 (2013), 91.
    """
    return float(mcnemar_midps(harmful, beneficial))


def mcnemar_midps(harmful: ArrayLike, beneficial: ArrayLike) -> stats.Floats:
    """``mcnemar_midp`` of many pairs of counts, element by element."""
    import numpy as np
    from scipy.special import bdtr

    lost, gained = np.asarray(harmful), np.asarray(beneficial)
    flips, fewer = lost + gained, np.minimum(lost, gained)
    below = np.where(fewer > 0, bdtr(np.maximum(fewer - 1, 0), flips, 0.5), 0.0)
    p = bdtr(fewer, flips, 0.5) + below  # both tails, what was seen at half its weight
    return np.asarray(np.where(flips == 0, 1.0, np.minimum(1.0, p)), dtype=np.float64)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values, in the order given (Holm, Scandinavian Journal of Statistics 6 (1979), 65-70)."""
    count, worst = len(p_values), 0.0
    adjusted = [0.0] * count
    for rank, place in enumerate(sorted(range(count), key=p_values.__getitem__)):
        worst = max(worst, min(1.0, (count - rank) * p_values[place]))
        adjusted[place] = worst
    return tuple(adjusted)


def p_beyond(
    interval: Interval,
    threshold: float,
    *,
    side: Literal["above", "below"],
    level: float,
    freedom: int | None = None,
) -> float:
    """The one-sided p-value against "not ``side`` the threshold", read off an interval; 1.0 without that limit.

    Scaled by the limit that faces the threshold, so that it is (1 - level) / 2 exactly where that limit touches
    the threshold. Student's t with ``freedom`` degrees where the interval came from that many, else normal.
    """
    from scipy.special import ndtr, ndtri, stdtr, stdtrit

    limit = interval.low if side == "above" else interval.high
    if limit is None:
        return 1.0
    distance = interval.value - threshold if side == "above" else threshold - interval.value
    reach = abs(interval.value - limit)
    if reach == 0:
        return 0.0 if distance > 0 else 1.0
    share = distance / reach
    if freedom is None:
        return float(ndtr(-ndtri((1 + level) / 2) * share))
    return float(stdtr(freedom, -stdtrit(freedom, (1 + level) / 2) * share))


def scaled(p_value: float, level: float) -> float:
    """A one-sided p-value as that of a 5 % test: 0.05 exactly where the interval of ``level`` touches its threshold."""
    return min(1.0, p_value * FAMILY_ERROR / ((1 - level) / 2))
