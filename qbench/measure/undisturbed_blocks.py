"""Which blocks ran on a core of their own, by the canary's readings before and after each; pure.

A block is undisturbed where neither of its two readings is disturbed (``machine.canary``). The calls of such blocks
take the same in every process and hour, the others' do not. Medians of the calls of three processes on a 2-vCPU KVM
guest, us (``python tests/benchmarks/canary.py states RUN``):

                                undisturbed            the rest               all together
    digits-cnn fp32             139.6  140.5  140.6    215.9  217.0  209.2    209.2  142.3  143.2
    the same in int8             33.1   31.9   32.0     47.5   48.1   46.8     45.5   32.1   32.1

Of a case with several threads the canary tells of one core.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from qbench.machine.canary import DISTURBED, calm_level
from qbench.measure.samples import Nanoseconds, Samples

LEAST_BLOCKS = 3  # so many undisturbed blocks have the 6 calls that a median needs, and one that misleads is outvoted


def lowest_level(readings: Iterable[Nanoseconds], known_ns: float | None = None) -> float | None:
    """The calm level that the readings of all cases together show, nanoseconds: a case that was disturbed throughout is
    seen against those measured beside it. None where nothing was read and nothing is known."""
    for canary_ns in readings:
        known_ns = calm_level(canary_ns, known_ns)
    return known_ns


def find_undisturbed(readings: Nanoseconds, calm_ns: float) -> NDArray[np.bool_]:
    """Of each block (a row of two readings) whether the core was its own before and after it."""
    return np.asarray((readings < DISTURBED * calm_ns).all(axis=1), dtype=np.bool_)


def select_calls(samples: Samples, known_ns: float | None) -> NDArray[np.bool_] | None:
    """Which calls lie in undisturbed blocks; None where that is not known, or where these are too few for a median:
    not all, and fewer than ``LEAST_BLOCKS``."""
    blocks = np.unique(samples.block)
    calm_ns = calm_level(samples.canary_ns, known_ns)
    if calm_ns is None or not len(blocks) or len(samples.canary_ns) != len(blocks):
        return None
    calm = find_undisturbed(samples.canary_ns, calm_ns)
    if calm.sum() < min(LEAST_BLOCKS, len(blocks)):
        return None
    return calm[np.searchsorted(blocks, samples.block)]
