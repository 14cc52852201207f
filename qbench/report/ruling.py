"""What a run's decisions say of each measured case: a few words, may it be shipped, its time over fp32; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qbench.compare import int8_share
from qbench.decide import cases, reasons
from qbench.decide.decision import Decision, decide_setting
from qbench.decide.judged import Judged
from qbench.decide.objective import VALUES
from qbench.decide.paired_times import PairedTimes, as_ratio, paired_times
from qbench.record.schema import Record
from qbench.report import palette
from qbench.stats.interval_type import Interval

# Reasons that are too long for a column. What is tied names the preference that it lost by.
_SHORT = {
    "run nothing in int8": "nothing in int8",
    "are faster than this core can be": "impossible",
    "slower than the pick": "slower",
    "slower by its estimate": "tied, slower",
    "tied, less accurate": "tied, accuracy",
    "tied, needs training": "tied, training",
    "tied, needs calibration": "tied, data",
    "tied, larger": "tied, size",
    "tied, slower to start": "tied, start",
    "tied, no better": "tied",
    **{reason: f"{limit} open" for limit, reason in reasons.OPEN.items() if reason.startswith("undecided")},
}
_BROKEN = {
    "accuracy": "loses too much",
    "floor": "below the least",
    "speed-up": "too slow",
    "latency": "too slow",
    "size": "too large",
    "memory": "needs too much",
    "int8": "nothing in int8",
    "peak": "impossible",
}


def name_limit(limit: str, failed: bool) -> str:
    """``loses too much``, ``too large``, ``accuracy open``."""
    return _BROKEN.get(limit, f"{limit} too high") if failed else f"{limit} open"


_FAILED = {several: name_limit(limit, True) for limit, (_, several) in reasons.BROKEN.items()}


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """What is said of a case in a few words, whether it may be shipped, whether it is what the answer names, and how
    many times as fast as the fastest fp32 it is; ``gain_shown``: the answer does not say that no gain is shown."""

    word: str
    candidate: bool = False
    picked: bool = False
    over_fp32: Interval | None = None
    gain_shown: bool = True

    @property
    def symbol(self) -> str:
        """The word's meaning at a glance: what to ship, as good, not as good, open, ruled out, a reference."""
        if self.word in FP32:
            return palette.VERDICTS["ship"].symbol if self.word == "keep" else palette.SYMBOLS["circle"]
        if self.picked:
            return palette.VERDICTS[self.word].symbol
        if not self.candidate:
            return palette.VERDICTS["FAIL"].symbol
        if self.word.startswith("tied"):
            return palette.VERDICTS["either"].symbol
        return "↓" if self.word == "slower" else palette.VERDICTS["undecided"].symbol

    @property
    def slower(self) -> bool:
        """Whether it is shown to be slower than the fastest fp32."""
        over = self.over_fp32
        return over is not None and (over.value if over.high is None else over.high) < 1

    @property
    def faster(self) -> bool:
        """Whether it is shown to be faster than the fastest fp32, by the answer's own test where that was made."""
        over = self.over_fp32
        return self.gain_shown and over is not None and (over.value if over.low is None else over.low) > 1


FP32 = ("keep", "fp32 twin", "fastest fp32", "fp32")  # words of cases that are no candidates and not ruled out either
Rulings = Mapping[str, Ruling]


def rank(judged: Judged, records: Sequence[Record], rulings: Rulings) -> list[Record]:
    """The pick, the other candidates, fp32, what is no candidate; each the best in what is minimized first."""
    objective = judged.decide.minimize

    def key(record: Record) -> tuple[int, float, float, float, str]:
        ruling = rulings[record.case.id]
        group = 3 - ruling.candidate * 2 - ruling.picked if record.case.mode != "fp32" else 2
        over = None if ruling.over_fp32 is None else ruling.over_fp32.value
        minimized = 0.0 if objective == "latency" else VALUES[objective](record) or float("inf")
        return group, minimized, -(over or 0.0), cases.p50(record) or float("inf"), record.case.id

    return sorted(records, key=key)


def rule(judged: Judged, decisions: Sequence[Decision]) -> dict[str, Ruling]:
    """What is said of each measured case, by its id."""
    rulings: dict[str, Ruling] = {}
    by_setting = {decision.setting: decision for decision in decisions}
    for setting in cases.settings(judged.records, judged.missing):
        decision = by_setting.get(setting) or decide_setting(judged, setting)
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
        return Ruling(word="best so far" if decision.missing else named[0], candidate=True, picked=True, over_fp32=over)
    if decision.verdict == "either" and record is decision.runner_up:
        return Ruling(word="either", candidate=True, picked=True, over_fp32=over)
    if reason is None:
        return _rule_unshipped(record, decision, over)
    worse = reason in (*_FAILED, int8_share.FP32_IN_EFFECT) or reason.endswith(("than fp32", "not measured"))
    word = _SHORT.get(reason) or _FAILED.get(reason) or reason
    return Ruling(word=word, candidate=not worse, over_fp32=over, gain_shown=reason != reasons.NO_GAIN)


def _rule_unshipped(record: Record, decision: Decision, over: Interval | None) -> Ruling:
    """What a decision is about without shipping it: the best int8 beside an fp32 that stays, or one that is open."""
    if decision.verdict == "keep fp32":
        slower = Ruling(word="slower than fp32", over_fp32=over)
        no_gain = Ruling(word=reasons.name_no_gain(decision.objective), candidate=True, over_fp32=over)
        return slower if slower.slower and decision.objective == "latency" else no_gain
    unshown = [check for check in decision.checks.get(record.case.id, ()) if check.outcome != "PASS"]
    limit = min(unshown, key=lambda check: check.outcome != "FAIL", default=None)
    if limit is None:
        return Ruling(word="undecided", candidate=True, over_fp32=over)
    failed = limit.outcome == "FAIL"
    name = reasons.name_broken(limit) if failed else limit.limit
    return Ruling(word=name_limit(name, failed), candidate=not failed, over_fp32=over)


def _over(record: Record, fastest: Record | None, times: PairedTimes) -> Interval | None:
    """From paired blocks where there are any; two p50 give no limits."""
    if fastest is None or record is fastest:
        return None if fastest is None else Interval(value=1.0)
    comparison = times.compare(record.case.id, fastest.case.id)
    if comparison is None:
        return None
    ratio = as_ratio(comparison)
    return Interval(value=ratio.value) if comparison.evidence == "p50" else ratio
