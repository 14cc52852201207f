"""An int8 case that is faster than this core can compute is measured wrongly, and no winner; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from qbench import formatting
from qbench.record.schema import Record

MOST = 1.1  # the peak is the best of products of several sizes, and read to a few per cent


def is_impossible(record: Record) -> bool:
    """Whether an int8 case reads clearly more than the int8 peak of its cores. fp32 may: Winograd convolutions do fewer
    multiplications than are counted. A peak that was measured while the host shared the core proves nothing."""
    roofline = record.roofline
    if record.case.mode == "fp32" or roofline is None or roofline.peak_fraction is None:
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
    if record.case.mode == "fp32" and roofline.peak_fraction > 1:
        return f"{share} (Winograd does fewer multiplications than counted)"
    return f"{share}: not possible" if is_impossible(record) else share


def warnings(records: Iterable[Record]) -> Iterator[str]:
    """One sentence for each case that is faster than possible, and one where the peak proves nothing."""
    known = list(records)
    if any(record.roofline is not None and record.roofline.peak_shared for record in known):
        yield (
            "the peak of this core was measured while the host shared it, so it is too low and every share of it too "
            "high: the next run that finds the core calm measures it again"
        )
    for record in known:
        if is_impossible(record) and record.roofline is not None and record.roofline.peak_fraction is not None:
            yield (
                f"{record.case.id} reads {formatting.share(record.roofline.peak_fraction, 0)} of the int8 peak of this "
                "core: faster than possible, so it is no winner; its artifact skips work, or its multiply-accumulates "
                "are miscounted"
            )
