"""What else used the core while a case was measured, in words: something on the host, or other processes here; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from qbench import formatting
from qbench.record.schema import Record

HIGH = 0.25  # of the time: from there on a reader should know before any figure
OFF_CORE = 0.05  # of the time; from there on long calls are cut, and so are ratios of a long and a short call
_NAMED = 3  # cases in one warning; of more, only their number


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


def warnings(records: Iterable[Record]) -> Iterator[str]:
    """Where other processes had the core, where the host shared it for long, and where a p50 is therefore not that of
    an undisturbed core."""
    records = list(records)
    yield from _warn_of_processes(records)
    watched = [(record, shared) for record in records if (shared := share_of(record)) is not None]
    high = [shared for _, shared in watched if shared >= HIGH]
    of_all = [record.case.id for record, shared in watched if shared >= HIGH and _of_all(record)]
    if high:
        p50 = "" if len(of_all) == len(high) else "p50 is that of the undisturbed blocks, "
        yield (
            f"the host shared the core {describe_range(high)} of the time {_say_during(len(high), len(watched))}: "
            f"{p50}p90 and p99 are longer than on a machine of your own; {_judge_speedups(watched)}"
        )
    if of_all:
        names = ", ".join(of_all) if len(of_all) <= _NAMED else f"{len(of_all)} cases"
        yield f"too few undisturbed blocks of {names}: p50 there is longer than on a core of its own"


def _warn_of_processes(records: Sequence[Record]) -> Iterator[str]:
    """What the canary does not see: it is shorter than a process's turn on the core, and runs within one."""
    shares = [record.interference.off_core for record in records if record.interference is not None]
    known = [share for share in shares if share is not None]
    if high := [share for share in known if share >= OFF_CORE]:
        yield describe_off_core(high, _say_during(len(high), len(known)))


def _say_during(count: int, cases: int) -> str:
    return f"while {count} of {cases} case{'' if cases == 1 else 's'} {'was' if count == 1 else 'were'} measured"


def describe_off_core(shares: Sequence[float], during: str) -> str:
    """What it does to times that other processes had the core for such shares of the time."""
    return (
        f"other processes of this machine had the core {describe_range(shares)} of the time {during}: calls of "
        "milliseconds are cut by it, so that their times are too long and the speed-up of a fast one over a slow one "
        "is too large; stop what else runs and measure again"
    )


def _of_all(record: Record) -> bool:
    return record.latency is not None and record.latency.p50_from == "all"


def describe_range(shares: Sequence[float]) -> str:
    """``40 % to 60 %``, or one of them where they read the same."""
    low, high = (formatting.share(limit, 0) for limit in (min(shares), max(shares)))
    return low if low == high else f"{low} to {high}"


def _judge_speedups(watched: Sequence[tuple[Record, float]]) -> str:
    """Whether ratios hold: blocks of one round share what disturbs them, one case after the other does not."""
    protocols = {record.speedup.protocol for record, _ in watched if record.speedup is not None}
    if "sequential" in protocols:
        return "speed-ups may be off, since protocol sequential measures one case after the other"
    return "speed-ups compare blocks of the same round, disturbed or not, and need not be the ratio of two p50"
