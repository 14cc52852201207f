"""How much the time of a case differs from one process to the next: what is known before any is measured, completed by
what the cases of a setting show, and by what the processes of a case show themselves; pure.

Two processes alone leave Student's t one degree of freedom: limits of 9 % where processes differ by 1.5 %. The other
cases of the setting ran in the same generations, and show whether processes differ here as they do elsewhere. What
refutes the knowledge before it, by an F test at ``REFUTED``, replaces it; a case that differs from the others so
(``OUTLYING``) says nothing of them.

Simulated (``python tests/benchmarks/time_spread_error.py``): coverage and median half width in per cent, 1,000 settings
a row, ln(time) normal between processes, ``spread`` times as wide as ``TIME_SPREAD``. Of ten cases the others have 1,
2 or 9 processes; ``wild`` of them differ 40 times as much; ``shared`` is the correlation of a generation's cases.

    cases wild shared processes spread   coverage half width   Student's t alone half width
        1    0    0.0         1    0.5        100        3.7                   -          -
        1    0    0.0         1      1         99        3.7                   -          -
        1    0    0.0         1      2         78        3.7                   -          -
        1    0    0.0         1      4         48        3.7                   -          -
        1    0    0.0         2    0.5        100        2.2                  97        4.8
        1    0    0.0         2      1         98        2.3                  97        9.6
        1    0    0.0         2      2         84        2.8                  97       19.2
        1    0    0.0         2      4         78        9.6                  97       38.3
        1    0    0.0         3    0.5        100        1.6                  95        1.5
        1    0    0.0         3      1         96        1.8                  95        3.0
        1    0    0.0         3      2         86        2.6                  95        6.1
        1    0    0.0         3      4         85        7.2                  95       12.1
        1    0    0.0         9    0.5         99        0.7                  95        0.6
        1    0    0.0         9      1         95        1.0                  95        1.1
        1    0    0.0         9      2         92        1.9                  95        2.2
        1    0    0.0         9      4         93        4.1                  95        4.4
       10    0    0.7         1    0.5        100        2.7                   -          -
       10    0    0.7         1      1         99        3.6                   -          -
       10    0    0.7         1      2         97        5.9                   -          -
       10    0    0.7         1      4         94       13.3                   -          -
       10    0    0.7         2    0.5        100        1.8                  95        4.5
       10    0    0.7         2      1         98        2.4                  95        8.9
       10    0    0.7         2      2         95        4.0                  95       17.8
       10    0    0.7         2      4         93        9.2                  95       35.6
       10    0    0.7         3    0.5        100        1.4                  94        1.5
       10    0    0.7         3      1         96        1.9                  94        3.1
       10    0    0.7         3      2         94        3.5                  94        6.1
       10    0    0.7         3      4         93        7.5                  94       12.2
       10    0    0.7         9    0.5         99        0.6                  94        0.6
       10    0    0.7         9      1         95        1.0                  94        1.1
       10    0    0.7         9      2         94        2.0                  94        2.2
       10    0    0.7         9      4         95        4.1                  94        4.4
       10    2    0.7         1    0.5        100        2.7                   -          -
       10    2    0.7         1      1         99        3.6                   -          -
       10    2    0.7         1      2         97        6.0                   -          -
       10    2    0.7         1      4         94       13.5                   -          -
       10    2    0.7         2    0.5        100        1.8                  95        4.5
       10    2    0.7         2      1         98        2.4                  95        8.9
       10    2    0.7         2      2         95        4.4                  95       17.8
       10    2    0.7         2      4         93        9.4                  95       35.6
       10    2    0.7         3    0.5        100        1.4                  94        1.5
       10    2    0.7         3      1         97        1.9                  94        3.1
       10    2    0.7         3      2         95        3.7                  94        6.1
       10    2    0.7         3      4         93        7.7                  94       12.2
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qbench.machine.process_spread import FREEDOM, TIME_SPREAD

# The level of the F test by which observed differences refute what was known of them, and by which a case is unlike
# the others of its setting.
REFUTED, OUTLYING = 0.95, 0.999
# Degrees of freedom: two processes that differ by more than was known still do not differ without bounds.
REMAINS = 1
# The cases of a generation share the machine's state: taken for the correlation of squared differences, as in a race.
SHARED = 0.25


@dataclass(frozen=True, kw_only=True)
class TimeSpread:
    """The variance of ln(time) from one process to the next, with its degrees of ``freedom``."""

    variance: float
    freedom: float

    def is_refuted_by(self, variance: float, freedom: float, level: float = REFUTED) -> bool:
        """Whether processes that differ so much do not differ as this says."""
        from scipy.special import fdtri

        return variance > self.variance * float(fdtri(freedom, self.freedom, level))

    def complete(self, variance: float, freedom: float) -> TimeSpread:
        """This together with what was observed; where that refutes it, the latter, to which this adds no more than
        ``REMAINS``."""
        if self.is_refuted_by(variance, freedom):
            return TimeSpread(variance=variance, freedom=freedom + REMAINS)
        total = self.freedom + freedom
        return TimeSpread(variance=(self.freedom * self.variance + freedom * variance) / total, freedom=total)

    def limit_mean(self, logs: Sequence[float], level: float, counts: Sequence[int] = ()) -> float:
        """Half the width of the interval on the mean of a case's ``logs``, one a process, of ln(time). ``counts``: how
        many calls each stands for, where the mean is that of all calls."""
        from scipy.special import stdtrit

        own = self.complete(*_vary(logs)) if len(logs) > 1 else self
        weights = np.asarray(counts or [1] * len(logs), dtype=float)
        share = float(np.linalg.norm(weights) / weights.sum())
        return float(stdtrit(own.freedom, (1 + level) / 2)) * math.sqrt(own.variance) * share


KNOWN = TimeSpread(variance=TIME_SPREAD**2, freedom=FREEDOM)


def pool_cases(logs: Iterable[Sequence[float]]) -> TimeSpread:
    """What is known of the processes of a setting from the ln(time) of each of its cases, one a process; worth no more
    processes than what is known of all, since the cases of a setting differ."""
    observed = sorted(_vary(case) for case in logs if len(case) > 1)
    pooled = KNOWN
    accepted: list[tuple[float, int]] = []
    for variance, freedom in observed:
        if accepted and pooled.is_refuted_by(variance, freedom, OUTLYING):
            break
        accepted.append((variance, freedom))
        pooled = _pool(accepted)
    return replace(pooled, freedom=min(pooled.freedom, FREEDOM))


def _pool(observed: Sequence[tuple[float, int]]) -> TimeSpread:
    freedom = sum(case_freedom for _, case_freedom in observed)
    variance = sum(case_variance * case_freedom for case_variance, case_freedom in observed) / freedom
    return KNOWN.complete(variance, freedom / (1 + SHARED * (len(observed) - 1)))


def _vary(logs: Sequence[float] | NDArray[np.float64]) -> tuple[float, int]:
    """The variance of ln(time) over several processes, and its degrees of freedom."""
    return float(np.var(logs, ddof=1)), len(logs) - 1
