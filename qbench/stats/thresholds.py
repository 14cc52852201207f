"""Where an interval lies against a threshold: pass, fail or undecided, and the p-value of that; pure."""

from __future__ import annotations

import math
from typing import Literal

from qbench.stats.interval_type import Interval

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE"]
# z(95 %) + z(80 %): a one-sided 5 % test that decides four times in five.
DECIDING_Z = 1.645 + 0.842


def decide(interval: Interval, threshold: float, *, wanted: Literal["above", "below"]) -> Outcome:
    """PASS if the whole interval is on the wanted side of the threshold, FAIL if on the other; else undecided."""
    if interval.low is None or interval.high is None:
        return "INCONCLUSIVE"
    if interval.low > threshold:
        return "PASS" if wanted == "above" else "FAIL"
    if interval.high < threshold:
        return "FAIL" if wanted == "above" else "PASS"
    return "INCONCLUSIVE"


def decide_number(value: float, most: float) -> Outcome:
    """Whether a number without an interval is at most ``most``, but for its last digit: 136 / 100 is a last digit above
    1 + 0.36."""
    return "FAIL" if value > most and not math.isclose(value, most, rel_tol=1e-12) else "PASS"


def p_value_beyond(
    interval: Interval,
    threshold: float,
    *,
    side: Literal["above", "below"],
    level: float,
    degrees_of_freedom: int | None = None,
) -> float:
    """The one-sided p-value against "not ``side`` the threshold", read off an interval; 1.0 without that limit.

    Scaled by the limit that faces the threshold, so that it is (1 - level) / 2 exactly where that limit touches
    the threshold. Student's t with ``degrees_of_freedom`` degrees where the interval came from that many, else normal.
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
    if degrees_of_freedom is None:
        return float(ndtr(-ndtri((1 + level) / 2) * share))
    return float(stdtr(degrees_of_freedom, -stdtrit(degrees_of_freedom, (1 + level) / 2) * share))
