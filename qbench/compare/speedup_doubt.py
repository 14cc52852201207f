"""Why a stored speed-up cannot be trusted; pure. The gate and the decision judge by the same rule."""

from __future__ import annotations

import math

from qbench import formatting
from qbench.record.schema import Record, Speedup

UNSTEADY = "the series was not steady: latency moved between its first and last third"
NOT_TOLD = "whether the series was steady cannot be told from so few blocks"
ENOUGH = 3  # processes: the limits of fewer hold what is known of processes in general


def is_coarse(record: Record) -> bool:
    """Whether the case's speed-up is known coarsely: it left the race after the screening, a few rounds in one process
    each. Its limits allow for what further processes would differ by."""
    return record.speedup is not None and record.speedup.stopped == "screened"


def find_doubt(speedup: Speedup, room: float, meaning: str) -> str | None:
    """Why a stored speed-up cannot be trusted: its control is off by more than ``room``, in words ``meaning``, or it
    drifted; None where it can."""
    control = speedup.control
    if speedup.protocol == "sequential":
        return f"protocol {speedup.protocol} has no control to tell noise from change"
    if speedup.stopped in ("screened", "left") and speedup.processes < ENOUGH:
        return None  # its limits are wide enough for what a control would tell: how processes and blocks differ
    if control is None or control.low is None or control.high is None:
        return "the control (A/A) was not measured, so noise cannot be told from change"
    worst = max(abs(math.log(control.low)), abs(math.log(control.high)))
    if worst > math.log1p(room):
        return (
            f"the machine is too noisy: the control (A/A), whose true value is 1, is "
            f"{formatting.with_limits(control)} and must lie within {meaning}, {math.log1p(room) * 100:.1f} %"
        )
    return find_unsteadiness(speedup)


def find_unsteadiness(speedup: Speedup) -> str | None:
    """``UNSTEADY``, or ``NOT_TOLD`` where too few blocks were measured to tell, as in a run that was cut; None
    where the series was steady, or where nobody asks: one call after the other, or a screening."""
    if speedup.protocol == "sequential" or speedup.stopped == "screened":
        return None
    return {True: None, False: UNSTEADY, None: NOT_TOLD}[speedup.steady]


def room_to_promise(value: float, promise: float) -> float:
    """How far a control may be off: a bias that could not carry the estimate half the way to the promise cannot have
    decided it."""
    return abs(math.log(value / promise)) / 2
