"""Workers are made warm before they are timed, and it is found how their blocks are made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qbench.measure.block_size import COLD_CALLS, LONG_CALL_SECONDS, PILOTS, Block, block_for, cold_calls, pilot_calls
from qbench.measure.protocol import Seconds, TimedWorker


def warm(worker: TimedWorker, *, calls: int, seconds: float, clock: Seconds) -> float:
    """Calls a worker for the longer of so many ``calls`` and ``seconds``; the seconds of its fastest last call."""
    started = clock()
    timing = worker.block(calls)
    while clock() - started < seconds:
        timing = worker.block(calls)
    return float(np.min(timing.calls_ns)) / 1e9


def count_left(calls: int, loading: int) -> int:
    """How many of the warm-up ``calls`` are left after those that ``loading`` made, since on a large network each takes
    long; at least one, whose time sizes the blocks."""
    return max(1, calls - loading)


def find_block(worker: TimedWorker, call_seconds: float, switch: Callable[[int], None] | None) -> Block:
    """How the blocks of a warm worker are made. ``switch`` runs so many calls of another worker: what follows it shows
    how many calls are cold; None where there is no other."""
    if call_seconds > LONG_CALL_SECONDS or switch is None:
        return block_for(call_seconds, COLD_CALLS)
    calls, pilots = pilot_calls(call_seconds), []
    for _ in range(PILOTS):
        switch(calls)
        pilots.append(worker.block(calls).calls_ns)
    return block_for(call_seconds, cold_calls(pilots))
