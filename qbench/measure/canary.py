"""Which blocks ran on a core of their own, by the canary's readings before and after each; pure.

A reading counts as disturbed from ``DISTURBED`` times the calm level on, and a block as undisturbed where neither of
its readings is. The limit lies in the valley between two states. 16,700 readings beside digits-cnn (2-vCPU KVM guest,
EPYC; `python tests/benchmarks/canary.py states`), as multiples of the calm level:

    up to 1.12    64 %       1.12 to 1.20   0.3 %      1.20 to 1.30   0.2 %      1.30 to 1.40   0.6 %
    1.40 to 1.80  33 %       above 1.80       2 %

The calls of blocks that are undisturbed by that rule took the same in every process and hour, those of the rest did not
(median of fp32, us, three processes each): 139.6, 140.2, 140.0 and 140.8, 139.1, 139.5, beside 217, 234, 229 and 224,
217, 222 disturbed.

A clock that is lowered by a fifth or more reads like a neighbour: either way the core did less than it can. Of a case
with several threads the canary tells of one core. Where every block of a run is disturbed, only an earlier reading of
the same machine can show it (``known_ns``); without one they count as undisturbed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from qbench.measure.samples import Nanoseconds, Samples

DISTURBED = 1.25  # the geometric middle of the two states' edges, 1.1 and 1.4
LEAST_BLOCKS = 3  # so many undisturbed blocks have the 6 calls that a median needs, and one that misleads is outvoted
_RANK = 2  # the third smallest reading is the level, since a clock that was raised for a moment gives one or two


def calm_level(readings: Nanoseconds, known_ns: float | None = None) -> float | None:
    """Nanoseconds that the canary takes on a core that nobody shares: the third smallest of the readings (of fewer than
    9 a smaller one), or ``known_ns`` where that is less. None where nothing was read and nothing is known."""
    if not readings.size:
        return known_ns
    rank = min(_RANK, (readings.size - 1) // 4)
    level = float(np.partition(readings, rank, axis=None)[rank])
    return level if known_ns is None else min(level, known_ns)


def find_undisturbed(readings: Nanoseconds, calm_ns: float) -> NDArray[np.bool_]:
    """Of each block (a row of two readings) whether the core was its own before and after it."""
    return np.asarray((readings < DISTURBED * calm_ns).all(axis=1), dtype=np.bool_)


def share_disturbed(readings: Nanoseconds, calm_ns: float) -> float | None:
    """The share of readings at which something else used the core; None where nothing was read."""
    return float((readings >= DISTURBED * calm_ns).mean()) if readings.size else None


def select_calls(samples: Samples, known_ns: float | None = None) -> NDArray[np.bool_] | None:
    """Which calls lie in undisturbed blocks; None where that is not known, or where these are too few for a median:
    fewer than ``LEAST_BLOCKS``, or in a single one of several processes."""
    blocks = np.unique(samples.block)
    calm_ns = calm_level(samples.canary_ns, known_ns)
    if calm_ns is None or not len(blocks) or len(samples.canary_ns) != len(blocks):
        return None
    calm = find_undisturbed(samples.canary_ns, calm_ns)
    if calm.sum() < LEAST_BLOCKS:
        return None
    if len(samples.process) == len(blocks):
        everywhere, here = (len(np.unique(processes)) for processes in (samples.process, samples.process[calm]))
        if everywhere > 1 and here == 1:
            return None
    return calm[np.searchsorted(blocks, samples.block)]
