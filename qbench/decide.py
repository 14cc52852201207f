"""Decisions from estimates: pass, fail or undecided; pure, thin over scipy and statsmodels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
    against -margin. PASS if the lower limit is above -margin, FAIL if the upper one is below it.
    """
    from scipy.stats import ttest_1samp

    new, old = stats.paired(contender, baseline)
    if stats.is_binary(new) and stats.is_binary(old):
        return non_inferiority_of_counts(int((new > old).sum()), int((new < old).sum()), new.size, margin, level)
    delta = stats.t_interval(new - old, level)
    spread = float((new - old).std()) if delta.low is not None else None
    p_worse = None if spread is None else float(ttest_1samp(new - old, -margin, alternative="less").pvalue)
    examples = None if spread is None else examples_to_decide(spread**2, delta.value, margin)
    return _decided(delta, margin, level, p_worse, examples)


def non_inferiority_of_counts(
    gained: int, lost: int, n: int, margin: float, level: float = NON_INFERIORITY_LEVEL
) -> NonInferiority:
    """The same for correct or not: ``gained`` and ``lost`` are the beneficial and harmful flips of n examples.

    The score test of ``stats.paired_proportions`` in place of the t test: at a true loss equal to the margin its
    false PASS rate was 3.7 to 5.1 %, the t test's 5.3 to 9.6 % (seven settings, n 200 to 5,000, 1.2 to 5 % flips,
    200,000 simulated runs each).
    """
    from scipy.stats import norm

    stats.check_counts(gained, lost, n)
    delta = stats.paired_proportions(gained, lost, n, level)
    p_worse = float(norm.cdf(stats.score_statistic(gained, lost, n, -margin))) if 0 <= margin < 1 else None
    examples = examples_to_decide((gained + lost) / n, delta.value, margin)
    return _decided(delta, margin, level, p_worse, examples)


def from_interval(delta: Interval, margin: float, level: float = 0.95) -> NonInferiority:
    """The same from a stored interval of the change alone, better positive; 95 % is the stricter test."""
    p_worse = p_beyond(delta, -margin, side="below", level=level)
    return _decided(delta, margin, level, p_worse, None)


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
    """About how many examples would decide, if the change stayed as it is; None if it sits on the margin.

    ``spread`` is the variance of the per-example change (for correct or not: the share of flips).
    n = spread x 2.49^2 / (margin + delta)^2; with no flips at all, what makes the score interval narrow enough.
    """
    room = abs(margin + delta)
    if margin <= 0 or room < 1e-9:
        return None
    without_flips = 1.645**2 * (1 - margin) / margin if margin < 1 else 1.0
    return max(1, math.ceil(max(spread * DECIDING_Z**2 / room**2, without_flips if delta == 0 else 0.0)))


def mcnemar_midp(harmful: int, beneficial: int) -> float:
    """The mid-p value of McNemar's test of "no change": two-sided, 1.0 without flips.

    Source: Fagerland, Lydersen, Laake, BMC Medical Research Methodology 13 (2013), 91.
    """
    from scipy.stats import binom

    flips = harmful + beneficial
    if flips == 0:
        return 1.0
    fewer = min(harmful, beneficial)
    p = 2 * binom.cdf(fewer, flips, 0.5) - binom.pmf(fewer, flips, 0.5)
    return float(min(1.0, p))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values, in the order given (Holm, Scandinavian Journal of Statistics 6 (1979), 65-70)."""
    from statsmodels.stats.multitest import multipletests

    if not p_values:
        return ()
    adjusted: Any = multipletests(list(p_values), method="holm")[1]
    return tuple(float(p) for p in adjusted)


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
