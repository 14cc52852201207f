"""What to know of a run's times before any figure: cases faster than possible, and cores that others use, too; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from qbench import formatting
from qbench.compare import above_peak, host_share
from qbench.record.schema import Record

_NAMED = 3  # cases in one warning; of more, only their number


def warn_of_impossible(records: Iterable[Record]) -> Iterator[str]:
    """One sentence for each case that is faster than possible, and one where the peak proves nothing."""
    known = list(records)
    if any(record.roofline is not None and record.roofline.peak_shared for record in known):
        yield (
            "the peak of this core was measured while the host shared it, so it is too low and every share of it too "
            "high: the next run that finds the core calm measures it again"
        )
    for record in known:
        if (
            above_peak.is_impossible(record)
            and record.roofline is not None
            and record.roofline.peak_fraction is not None
        ):
            yield (
                f"{record.case.id} reads {formatting.share(record.roofline.peak_fraction, 0)} of the int8 peak of this "
                "core: faster than possible, so it is no winner; its artifact skips work, or its multiply-accumulates "
                "are miscounted"
            )


def warn_of_sharing(records: Iterable[Record]) -> Iterator[str]:
    """Where other processes had the core, where the host shared it for long, and where a p50 is therefore not that of
    an undisturbed core."""
    records = list(records)
    yield from _warn_of_processes(records)
    watched = [(record, shared) for record in records if (shared := host_share.share_of(record)) is not None]
    high = [shared for _, shared in watched if shared >= host_share.HIGH]
    of_all = [record.case.id for record, shared in watched if shared >= host_share.HIGH and _of_all(record)]
    if high:
        p50 = "" if len(of_all) == len(high) else "p50 is that of the undisturbed blocks, "
        yield (
            f"the host shared the core {host_share.describe_range(high)} of the time "
            f"{_say_during(len(high), len(watched))}: "
            f"{p50}p90 and p99 are longer than on a machine of your own; {_judge_speedups(watched)}"
        )
    if of_all:
        names = ", ".join(of_all) if len(of_all) <= _NAMED else f"{len(of_all)} cases"
        yield f"too few undisturbed blocks of {names}: p50 there is longer than on a core of its own"


def _warn_of_processes(records: Sequence[Record]) -> Iterator[str]:
    """What the canary does not see: it is shorter than a process's turn on the core, and runs within one."""
    shares = [record.interference.off_core for record in records if record.interference is not None]
    known = [share for share in shares if share is not None]
    if high := [share for share in known if share >= host_share.OFF_CORE]:
        yield host_share.describe_off_core(high, _say_during(len(high), len(known)))


def _say_during(count: int, cases: int) -> str:
    return f"while {count} of {cases} case{'' if cases == 1 else 's'} {'was' if count == 1 else 'were'} measured"


def _of_all(record: Record) -> bool:
    return record.latency is not None and record.latency.p50_from == "all"


def _judge_speedups(watched: Sequence[tuple[Record, float]]) -> str:
    """Whether ratios hold: blocks of one round share what disturbs them, one case after the other does not."""
    protocols = {record.speedup.protocol for record, _ in watched if record.speedup is not None}
    if "sequential" in protocols:
        return "speed-ups may be off, since protocol sequential measures one case after the other"
    return "speed-ups compare blocks of the same round, undisturbed ones where there are enough"
