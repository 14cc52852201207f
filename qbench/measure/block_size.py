"""How long a block is and where it becomes warm; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Block:
    """How one worker's blocks are made: ``discard`` calls unseen (a switch leaves cold caches), then ``keep``."""

    discard: int
    keep: int


LONG_CALL_SECONDS = 0.010
PILOTS = 5
COLD_CALLS = 4  # where no pilot tells
FLAT = 1.01  # a call within 1 % of the plateau is warm


def block_for(call_seconds: float, discard: int) -> Block:
    """The block of a model that takes so long: 5 to 10 ms of kept calls; above 10 ms a call, 1 discarded and 2 kept."""
    if call_seconds > LONG_CALL_SECONDS:
        return Block(discard=1, keep=2)
    keep = math.ceil(0.005 / max(call_seconds, 1e-6))
    return Block(discard=discard, keep=max(3, min(keep, 60)))


def pilot_calls(call_seconds: float) -> int:
    """How many calls a pilot block has: enough to see the plateau, 4 to 16, about 10 ms."""
    return max(4, min(16, math.ceil(0.010 / max(call_seconds, 1e-6))))


def cold_calls(pilots: Sequence[NDArray[np.int64]]) -> int:
    """How many first calls of a block to discard, from blocks that each followed a switch of workers.

    The position curve is the median over the pilots at each position, its plateau the median of the second half. The
    first position within 1 % of the plateau is the first that is kept; at least 1 and at most half are discarded.
    After a switch a 0.75 ms int8 model ran +57, +11, +5, +1 %: 4 calls.
    """
    curve = np.median(np.stack(pilots), axis=0)
    half = len(curve) // 2
    plateau = float(np.median(curve[half:]))
    warm = [position for position in range(half) if curve[position] <= FLAT * plateau]
    return max(1, warm[0]) if warm else half
