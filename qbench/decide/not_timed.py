"""Contestants that lead on this machine and have no time on another host, where the answer is open for it; pure."""

from __future__ import annotations

from collections.abc import Sequence

from qbench.decide import cases
from qbench.decide.cases import variant
from qbench.decide.choose import Choice
from qbench.decide.judged import Judged
from qbench.decide.qualify import may_be_shipped
from qbench.decide.tie import Contest
from qbench.record.schema import NATIVE, Record

NAMED = 3  # so many are named


def list_untimed_leaders(
    choice: Choice, records: Sequence[Record], native: Sequence[Record], judged: Judged, contest: Contest
) -> tuple[Record, ...]:
    """The ``records`` of a host without a time there that on ``native`` are ahead of what they would be held against
    there: an fp32 of the fastest fp32 there, an int8 that may be shipped of what is meant there. ``contest`` is that of
    the native records. What fails there does not run there, so that it leads nothing."""
    if choice.verdict == "no answer":
        return ()
    by_variant = {variant(record): record for record in native if _has_value(record, contest)}
    meant = choice.pick if choice.verdict in ("ship", "undecided") else choice.fp32
    leaders = []
    for record in records:
        here, rival = by_variant.get(variant(record)), choice.fp32 if record.case.mode == "fp32" else meant
        if here is None or record.status == "failed" or record.case.is_twin or _has_value(record, contest):
            continue
        if not all(may_be_shipped(judged.checks_of(each)) for each in (record, here)):
            continue
        its = None if rival is None else by_variant.get(variant(rival))
        if rival is None or (its is not None and contest.objective.compare(here, its).value < 0):
            leaders.append(record)
    return tuple(leaders)


def list_notes(records: Sequence[Record], leaders: Sequence[Record], contest: Contest) -> tuple[str, ...]:
    """That nothing on another host was held against an fp32 without a time there, where no leader says so."""
    fp32 = [record for record in records if cases.is_plain_fp32(record) and record.case.host != NATIVE]
    left_out = [record for record in fp32 if record.status != "failed" and not _has_value(record, contest)]
    names = [variant(record) for record in left_out if record not in leaders]
    return (f"Without a time here, and not part of the decision: {', '.join(names)}.",) if names else ()


def explain_untimed(leaders: Sequence[Record], sentence: str) -> str:
    """Why the answer is open, and what ``sentence`` says of those that have a time."""
    host, several = leaders[0].case.host, len(leaders) > 1
    names = ", ".join(variant(record) for record in leaders[:NAMED])
    more = f" and {len(leaders) - NAMED} more" if len(leaders) > NAMED else ""
    why = "; ".join(dict.fromkeys(_explain(record) for record in leaders))
    return (
        f"Undecided: {names}{more} {'lead' if several else 'leads'} on native and {'have' if several else 'has'} no "
        f"time on {host} ({why}). Of those timed there: {sentence[0].lower()}{sentence[1:]}"
    )


def _explain(record: Record) -> str:
    if cases.is_unmeasured(record) and record.host is not None:
        return f"its answers there are {record.host.kind}, not measured"
    return record.reason or "not measured"


def _has_value(record: Record, contest: Contest) -> bool:
    """Whether what is minimized was measured of a case on its host."""
    return record.status == "ok" and not cases.is_unmeasured(record) and contest.objective.value(record) is not None
