"""Several tests that share one error: Holm's correction, and the p-values that it takes; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from qbench.stats.thresholds import DECIDING_Z

# The error that the gate's rules share.
FAMILY_ERROR = 0.05


def adjust_by_holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values, in the order given (Holm, Scandinavian Journal of Statistics 6 (1979), 65-70)."""
    count, worst = len(p_values), 0.0
    adjusted: dict[int, float] = {}
    for rank, place in enumerate(sorted(range(count), key=p_values.__getitem__)):
        worst = max(worst, min(1.0, (count - rank) * p_values[place]))
        adjusted[place] = worst
    return tuple(adjusted[place] for place in range(count))


def estimate_sample_factor(p_value: float, rules: int) -> float:
    """How many times as many samples would let a FAIL with this one-sided p-value stand among so many rules four times
    in five, if the estimate stayed as it is: z grows with the root of the samples, and Holm asks for 5 % / rules.

    Infinite where the estimate is not beyond the threshold.
    """
    from scipy.special import ndtri

    reached = -float(ndtri(p_value))
    needed = -float(ndtri(FAMILY_ERROR / rules)) + DECIDING_Z - 1.645
    return max(1.0, (needed / reached) ** 2) if reached > 0 else math.inf


def scale_p_value(p_value: float, level: float) -> float:
    """A one-sided p-value as that of a 5 % test: 0.05 exactly where the interval of ``level`` touches its threshold."""
    return min(1.0, p_value * FAMILY_ERROR / ((1 - level) / 2))
