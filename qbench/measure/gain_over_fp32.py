"""Whether more measuring could still change what the decision says of the leader's gain over the fastest fp32; pure.

The decision ships what is shown to be faster, corrected by Holm for all variants that were tried. A race that stopped
by a plain 95 % interval would leave gains that the decision does not take for shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from qbench.measure.paired_difference import LEVEL, SHOWN_ERROR, PairedDifference, compare_minima
from qbench.measure.pairing import Minima


def find_gain(leader: str | None, fastest: str | None, minima: Mapping[str, Minima]) -> PairedDifference | None:
    """How much longer the leader takes than the fastest fp32, as the decision sees it; None without one of them."""
    if leader is None or fastest is None or leader == fastest:
        return None
    return compare_minima(minima[leader], minima[fastest])


def is_gain_settled(gain: PairedDifference, enough: float, tried: int) -> bool:
    """Whether the leader is shown to be faster than fp32 by the decision's own test (Bonferroni over all ``tried``, so
    that Holm says the same), shown to be slower, or known to less than ``enough`` (a share) either way."""
    error = SHOWN_ERROR / tried
    if gain.p_not_below(0.0) <= error or gain.limits(LEVEL)[0] > 0:
        return True
    return gain.half_width_seen(1 - 2 * error) <= math.log1p(enough)
