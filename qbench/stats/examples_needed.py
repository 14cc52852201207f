"""How many examples would decide an undecided test four times in five, by the test itself at growing numbers; pure and
seeded.

The examples at hand stay, and further ones are drawn as they may be in truth: at rates, or with a mean, from what is
known now (the posterior of the present counts under Jeffreys' prior, a normal one of a mean). A difference that lies
near the margin by chance is then not taken for one that does, and no number is asked for that is hardly larger than the
one at hand. Beyond ``MOST_TIMES`` times the examples it is ``many_more``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from qbench.stats import intervals
from qbench.stats.interval_type import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

# More than so many times the examples are nobody's plan.
MOST_TIMES = 100
POWER = 0.8  # the share of continuations that are decided
DRAWS = 400
NEAR = 1.01  # a number is known to 1 %


def are_many(examples: int, n: int) -> bool:
    """Whether a number stands for "many more" than the ``n`` at hand."""
    return examples > MOST_TIMES * n


def for_mean(delta: Interval, spread: float, n: int, margin: float, level: float) -> int | None:
    """For a mean change with limits at ``level``; ``spread`` is the variance of one example. What the limits reach as
    those of a normal mean shrinks with the root of the number, what they allow for rare losses with the number. None
    where there are no limits, or they are no numbers."""
    from scipy.special import ndtr

    if delta.low is None or delta.high is None or n < 1:
        return None
    room, below, above = delta.value + margin, delta.value - delta.low, delta.high - delta.value
    if not (math.isfinite(spread) and math.isfinite(room) and math.isfinite(below) and math.isfinite(above)):
        return None

    plain = intervals.normal_quantile(level) * math.sqrt(spread / n)

    def reach(limit: float, number: int) -> float:
        return plain * math.sqrt(n / number) + (limit - plain) * n / number

    def share_decided(number: int) -> float:
        # The mean of all, seen from now: the mean of the examples to come and where their own mean lies.
        error = math.sqrt(spread * (number - n) / number / n)
        ends = (room - reach(below, number), -room - reach(above, number))
        return float(sum(ndtr(end / error) if error > 0 else end > 0 for end in ends))

    return _grow(n, share_decided)


@cache
def for_counts(gained: int, lost: int, n: int, decides: Callable[[int, int, int], bool]) -> int:
    """For right or wrong, of which ``gained`` and ``lost`` flipped; ``decides`` is the test on such counts."""
    import numpy as np

    random = np.random.default_rng(0)
    rates = random.dirichlet([gained + 0.5, lost + 0.5, n - gained - lost + 0.5], DRAWS)

    def share_decided(number: int) -> float:
        drawn: NDArray[Any] = np.random.default_rng(1).multinomial(number - n, rates)
        pairs, counts = np.unique(drawn[:, :2], axis=0, return_counts=True)  # most are drawn several times
        decided = [decides(gained + more, lost + less, number) for more, less in pairs.tolist()]
        return float(counts[decided].sum()) / DRAWS

    return _grow(n, share_decided)


@cache
def for_share(right: int, n: int, limit: float, tail: float) -> int:
    """For the share that is right, held against ``limit`` by the exact test, with ``tail`` on either side."""
    import numpy as np
    from scipy.special import bdtr, bdtrc

    rates = np.random.default_rng(0).beta(right + 0.5, n - right + 0.5, DRAWS)

    def share_decided(number: int) -> float:
        counts = right + np.random.default_rng(1).binomial(number - n, rates)
        passes = bdtrc(counts - 1, number, limit) < tail
        return float((passes | (bdtr(counts, number, limit) < tail)).mean())

    return _grow(n, share_decided)


def _grow(n: int, share_decided: Callable[[int], float]) -> int:
    """The least number, to 1 %, at which four in five are decided; one more than the most where it takes more."""
    least, most = n, n + max(1, n // 8)
    while share_decided(most) < POWER:
        if most >= MOST_TIMES * n:
            return MOST_TIMES * n + 1
        least, most = most, min(2 * most, MOST_TIMES * n)
    while most - least > 1 and most > NEAR * least:
        middle = (least + most) // 2
        least, most = (least, middle) if share_decided(middle) >= POWER else (middle, most)
    return most
