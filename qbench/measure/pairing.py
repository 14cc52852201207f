"""Two cases of one group held against each other: log ratios of blocks that ran in the same round; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from qbench.measure.samples import Samples, split

Minima = Mapping[tuple[int, int], float]  # (process, round): nanoseconds of the fastest call of the block


def pair_blocks(case: Samples, other: Samples) -> Mapping[int, NDArray[np.float64]]:
    """ln(case / other) of the block minima of each round that both ran in, by process (a generation of processes that
    were alive together). Empty where the rounds of one of them are not known, or where they never met.

    What slows a whole round (a neighbour on the host) and what a generation's shared baseline does cancel.
    """
    return pair_minima(list_minima(case), list_minima(other))


def pair_minima(case: Minima, other: Minima) -> Mapping[int, NDArray[np.float64]]:
    """``pair_blocks`` of what ``list_minima`` gave of both."""
    log_ratios: dict[int, list[float]] = {}
    for key, nanoseconds in case.items():
        if (beside := other.get(key)) is not None:
            log_ratios.setdefault(key[0], []).append(math.log(nanoseconds / beside))
    return {process: np.asarray(values) for process, values in sorted(log_ratios.items())}


def list_minima(samples: Samples) -> Minima:
    """The fastest call of each block; empty where the rounds are not known. A call below the clock's resolution reads
    0; one nanosecond keeps the ratio defined."""
    blocks = split(samples.calls_ns, samples.block)
    if not len(blocks) == len(samples.process) == len(samples.round):
        return {}
    keys = zip(samples.process.tolist(), samples.round.tolist(), strict=True)
    return {key: max(1.0, float(block.min())) for key, block in zip(keys, blocks, strict=True)}
