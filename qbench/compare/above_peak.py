"""An int8 case that is faster than this core can compute is measured wrongly, and no winner; pure."""

from __future__ import annotations

from qbench import formatting
from qbench.modes import is_int8
from qbench.record.schema import Record

MOST = 1.1  # the peak is the best of products of several sizes, and read to a few per cent


def is_impossible(record: Record) -> bool:
    """Whether an int8 case reads clearly more than the int8 peak of its cores. Floats may: Winograd convolutions do
    fewer multiplications than are counted. A peak that was measured while the host shared the core proves nothing."""
    roofline = record.roofline
    if not is_int8(record.case.mode) or roofline is None or roofline.peak_fraction is None:
        return False
    return roofline.peak_fraction > MOST and not roofline.peak_shared


def describe(record: Record) -> str | None:
    """The share of the peak, and what a share above 1 means; None where it is not known."""
    roofline = record.roofline
    if roofline is None or roofline.peak_fraction is None:
        return None
    share = formatting.share(roofline.peak_fraction)
    if roofline.peak_shared:
        return f"{share} (the peak was read on a shared core: too low)"
    if not is_int8(record.case.mode) and roofline.peak_fraction > 1:
        return f"{share} (Winograd does fewer multiplications than counted)"
    return f"{share}: not possible" if is_impossible(record) else share
