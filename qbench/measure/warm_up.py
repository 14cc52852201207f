"""Workers are made warm before they are timed, and it is found how their blocks are made."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qbench.measure.block_size import COLD_CALLS, LONG_CALL_SECONDS, PILOTS, Block, block_for, cold_calls, pilot_calls
from qbench.measure.protocol import Seconds, TimedWorker

# From here on a call is warm after a few: of networks of 10 to 50 ms a call on five engines, processor time is flat
# within 2 % from the third or fourth call of a process on, and remains so after a second of sleep.
SLOW_CALL_SECONDS = 0.005
STEADY = 1.05  # a slow call is warm where the one before took up to so many times as long


def warm(worker: TimedWorker, *, calls: int, seconds: float, clock: Seconds) -> float:
    """Calls a worker that has been loaded, and so called, until it is warm; the seconds of its fastest last call.

    A network whose call takes long is warm as soon as a call is about as fast as the one before, at the latest after
    ``calls``. Others are called for the longer of ``calls`` and ``seconds``.
    """
    started = clock()
    timing = worker.block(1)
    if timing.calls_ns[0] >= SLOW_CALL_SECONDS * 1e9:
        return _warm_slow(worker, int(timing.calls_ns[0]), calls)
    while clock() - started < seconds or len(timing.calls_ns) < calls:
        timing = worker.block(calls)
    return float(np.min(timing.calls_ns)) / 1e9


def _warm_slow(worker: TimedWorker, nanoseconds: int, calls: int) -> float:
    before = nanoseconds
    for _ in range(calls - 1):
        before, nanoseconds = nanoseconds, int(worker.block(1).calls_ns[0])
        if before <= STEADY * nanoseconds:
            break
    return min(before, nanoseconds) / 1e9


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
