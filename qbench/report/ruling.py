"""What a run's decisions say of each measured case: a few words, may it be shipped, its time over fp32; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qbench.compare import int8_share
from qbench.decide import cases, reasons
from qbench.decide.decision import Decision
from qbench.decide.judged import Judged
from qbench.decide.paired_times import PairedTimes, as_ratio, paired_times
from qbench.record.schema import Record
from qbench.stats.interval_type import Interval

# Reasons that are too long for a column. What is tied names the preference that it lost by.
_SHORT = {
    "run nothing in int8": "nothing in int8",
    "are faster than this core can be": "impossible",
    "slower than the pick": "slower",
    "slower by its estimate": "tied, slower",
    "tied, less accurate": "tied, accuracy",
    "tied, needs training": "tied, training",
    "tied, larger": "tied, size",
    "tied, slower to start": "tied, start",
    "tied, no better": "tied",
    **{told: f"{limit} open" for limit, told in reasons.OPEN.items() if told.startswith("undecided")},
}
_FAILED = {several: f"{limit} FAIL" for limit, (_, several) in reasons.BROKEN.items()}


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """What is said of a case in a few words, whether it may be shipped, whether it is what the answer names, and how
    many times as fast as the fastest fp32 it is."""

    word: str
    candidate: bool = False
    picked: bool = False
    over_fp32: Interval | None = None


Rulings = Mapping[str, Ruling]


def rule(judged: Judged, decisions: Sequence[Decision]) -> dict[str, Ruling]:
    """What is said of each measured case, by its id."""
    rulings: dict[str, Ruling] = {}
    for decision in decisions:
        records = [r for r in cases.of_setting(decision.setting, judged.records) if r.status == "ok"]
        times = paired_times(records, judged.samples)
        fastest = decision.fp32 if decision.objective == "latency" else None
        fastest = fastest or cases.fastest_fp32(records)
        why = {case: reason for reason, named in decision.not_it for case in named}
        for record in records:
            over = _over(record, fastest, times)
            if record.case.mode == "fp32":
                rulings[record.case.id] = Ruling(word=_name_fp32(record, fastest, decision), over_fp32=over)
            else:
                rulings[record.case.id] = _rule_int8(record, decision, why.get(record.case.id), over)
    return rulings


def _name_fp32(record: Record, fastest: Record | None, decision: Decision) -> str:
    if decision.verdict in ("keep fp32", "none qualifies") and record is decision.fp32:
        return "keep"
    if record.case.is_twin:
        return "fp32 twin"
    return "fastest fp32" if record is fastest else "fp32"


def _rule_int8(record: Record, decision: Decision, reason: str | None, over: Interval | None) -> Ruling:
    named = {"ship": ("ship", decision.pick), "either": ("either", decision.pick)}.get(decision.verdict)
    if named is not None and record is named[1]:
        return Ruling(word=named[0], candidate=True, picked=True, over_fp32=over)
    if decision.verdict == "either" and record is decision.runner_up:
        return Ruling(word="either", candidate=True, picked=True, over_fp32=over)
    if reason is None:
        return _rule_unshipped(record, decision, over)
    worse = reason in (*_FAILED, int8_share.FP32_IN_EFFECT) or reason.endswith(("than fp32", "not measured"))
    word = _SHORT.get(reason) or _FAILED.get(reason) or reason
    return Ruling(word=word, candidate=not worse, over_fp32=over)


def _rule_unshipped(record: Record, decision: Decision, over: Interval | None) -> Ruling:
    """What a decision is about without shipping it: the best int8 beside an fp32 that stays, or one that is open."""
    if decision.verdict == "keep fp32":
        slower = over is not None and (over.value if over.high is None else over.high) < 1
        return Ruling(word="slower than fp32" if slower else "no gain shown", candidate=not slower, over_fp32=over)
    unshown = [check for check in decision.checks.get(record.case.id, ()) if check.outcome != "PASS"]
    limit = min(unshown, key=lambda check: check.outcome != "FAIL", default=None)
    if limit is None:
        return Ruling(word="undecided", candidate=True, over_fp32=over)
    failed = limit.outcome == "FAIL"
    return Ruling(word=f"{limit.limit} {'FAIL' if failed else 'open'}", candidate=not failed, over_fp32=over)


def _over(record: Record, fastest: Record | None, times: PairedTimes) -> Interval | None:
    """From paired blocks where there are any; two p50 give no limits."""
    if fastest is None or record is fastest:
        return None if fastest is None else Interval(value=1.0)
    comparison = times.compare(record.case.id, fastest.case.id)
    if comparison is None:
        return None
    ratio = as_ratio(comparison)
    return Interval(value=ratio.value) if comparison.evidence == "p50" else ratio
