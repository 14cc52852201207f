"""McNemar's test of "no change" in the number of correct examples; pure."""

from __future__ import annotations

from numpy.typing import ArrayLike

from qbench.stats import intervals


def midp(harmful: int, beneficial: int) -> float:
    """The mid-p value of McNemar's test of "no change": two-sided, 1.0 without flips.

    Source: Fagerland, Lydersen, Laake, BMC Medical Research Methodology 13 (2013), 91.
    """
    return float(midps(harmful, beneficial))


def midps(harmful: ArrayLike, beneficial: ArrayLike) -> intervals.Floats:
    """``midp`` of many pairs of counts, element by element."""
    import numpy as np
    from scipy.special import bdtr

    lost, gained = np.asarray(harmful), np.asarray(beneficial)
    flips, fewer = lost + gained, np.minimum(lost, gained)
    below = np.where(fewer > 0, bdtr(np.maximum(fewer - 1, 0), flips, 0.5), 0.0)
    p = bdtr(fewer, flips, 0.5) + below  # both tails, what was seen at half its weight
    return np.asarray(np.where(flips == 0, 1.0, np.minimum(1.0, p)), dtype=np.float64)
