"""Two cases of one group held against each other: log ratios of blocks that ran in the same round; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from qbench.measure.samples import Samples, split


def pair_blocks(case: Samples, other: Samples) -> Mapping[int, NDArray[np.float64]]:
    """ln(case / other) of the block minima of each round that both ran in, by process (a generation of processes that
    were alive together). Empty where the rounds of one of them are not known, or where they never met.

    What slows a whole round (a neighbour on the host) and what a generation's shared baseline does cancel.
    """
    by_round = _list_minima(other)
    log_ratios: dict[int, list[float]] = {}
    for (process, number), seconds in _list_minima(case).items():
        if (beside := by_round.get((process, number))) is not None:
            log_ratios.setdefault(process, []).append(math.log(seconds / beside))
    return {process: np.asarray(values) for process, values in sorted(log_ratios.items())}


def _list_minima(samples: Samples) -> dict[tuple[int, int], float]:
    """(process, round): the fastest call of the block, nanoseconds. A call below the clock's resolution reads 0; one
    nanosecond keeps the ratio defined."""
    blocks = split(samples.calls_ns, samples.block)
    if not len(blocks) == len(samples.process) == len(samples.round):
        return {}
    keys = zip(samples.process.tolist(), samples.round.tolist(), strict=True)
    return {key: max(1.0, float(block.min())) for key, block in zip(keys, blocks, strict=True)}
