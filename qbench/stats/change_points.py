"""Where a series of runs changed its level, with a stated rate of false alarms; pure.

Optimal segmentation by the least squares (PELT: Killick, Fearnhead and Eckley, Journal of the American Statistical
Association 107 (2012), 1590-1598), as ``ruptures`` has it. The penalty is about the largest gain of a split in runs in
which nothing changed: twice the Bonferroni limit of chi-square over all places and series, plus 5, which holds 5 % for
normal noise, for long tails (Student's t with 4 degrees) and for noise that one run passes on to the next (0.3);
`python tests/benchmarks/change_point_error.py` shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEAST_RUNS = 8  # no change is claimed in fewer
LEAST_SEGMENT = 3  # runs on either side of a change: one run alone is no level
ERROR = 0.05  # that any of the series of a panel in which nothing changed is said to have changed
_WINDOW = 5
_CLIP = 3.0  # deviations from the median of the neighbours at which a single run is held
_MAD = 1.4826


def find_change_points(
    series: Sequence[Sequence[float]], *, least_noise: float, families: int = 1
) -> tuple[tuple[int, ...], ...]:
    """For each series (values on an additive scale, such as logarithms) the places at which a new level begins.

    Noise is each series' own, but no less than the median of all of them nor than ``least_noise``. All series share
    one error, ``ERROR``, with those of so many ``families`` of as many series. Those shorter than ``LEAST_RUNS`` have
    none.
    """
    arrays = [np.asarray(values, dtype=np.float64) for values in series]
    noises = [noise_of(values) for values in arrays if len(values) >= LEAST_RUNS]
    pooled = float(np.median(noises)) if noises else 0.0
    return tuple(_segment(values, max(pooled, least_noise), len(arrays) * families) for values in arrays)


def noise_of(values: Floats) -> float:
    """The standard deviation from run to run, from the median absolute step: a few changes of level do not widen it."""
    steps = np.abs(np.diff(values))
    return float(_MAD * np.median(steps) / np.sqrt(2)) if len(steps) else 0.0


def penalty(runs: int, series: int) -> float:
    """What a split must gain, in squared deviations, so that any of so many series shows a false one in 5 %."""
    from scipy.special import chdtri

    return 2 * float(chdtri(1, ERROR / (runs * series))) + 5


def _segment(values: Floats, least: float, series: int) -> tuple[int, ...]:
    if len(values) < LEAST_RUNS:
        return ()
    import ruptures  # half a second, and only for a history

    scaled = values / max(noise_of(values), least)
    middle = np.array([np.median(scaled[_near(place, len(scaled))]) for place in range(len(scaled))])
    held = np.clip(scaled, middle - _CLIP, middle + _CLIP)
    search = ruptures.Pelt(model="l2", min_size=LEAST_SEGMENT, jump=1).fit(held.reshape(-1, 1))
    return tuple(int(place) for place in search.predict(pen=penalty(len(values), series))[:-1])


def _near(place: int, count: int) -> slice:
    first = max(0, min(place - _WINDOW // 2, count - _WINDOW))
    return slice(first, first + _WINDOW)
