"""What else used the core while a case was measured, in words: something on the host, or other processes here; pure."""

from __future__ import annotations

from collections.abc import Sequence

from qbench import formatting
from qbench.record.schema import Record

HIGH = 0.25  # of the time: from there on a reader should know before any figure
OFF_CORE = 0.05  # of the time; from there on limits are wider for it


def describe(record: Record) -> str | None:
    """``137 us undisturbed; the host shared the core 60 % of the time``; None where it was not watched."""
    latency, shared = record.latency, share_of(record)
    if latency is None or shared is None:
        return None
    sharing = f"the host shared the core {formatting.share(shared, 0)} of the time"
    if latency.p50_seconds is None or latency.p50_from is None:
        return sharing
    which = "undisturbed" if latency.p50_from == "undisturbed" else "over all blocks, too few are undisturbed"
    return f"{formatting.duration(latency.p50_seconds)} {which}; {sharing}"


def share_of(record: Record) -> float | None:
    """The share of the time in which something else used the core; None where it was not watched."""
    return record.interference.shared if record.interference else None


def describe_off_core(shares: Sequence[float], during: str) -> str:
    """What it does to times that other processes had the core for such shares of the time."""
    return (
        f"other processes of this machine had the core {describe_range(shares)} of the time {during}: calls that they "
        "cut are counted by their processor time, and limits are wider by what that does not show (cold caches); stop "
        "what else runs, and limits are narrower"
    )


def describe_range(shares: Sequence[float]) -> str:
    """``40 % to 60 %``, or one of them where they read the same."""
    low, high = (formatting.share(limit, 0) for limit in (min(shares), max(shares)))
    return low if low == high else f"{low} to {high}"
