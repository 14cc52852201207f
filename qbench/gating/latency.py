"""The gate's rules on latency: has the case become slower, and does it hold its promised speed-up?

None means that a rule does not concern the case or was not asked for.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

from qbench import formatting
from qbench.compare import above_peak, compare
from qbench.compare.speedup_doubt import find_doubt
from qbench.decide import limits
from qbench.decide.limits import LimitCheck
from qbench.gating.deciding import advise_live, advise_speedup, advise_stored, describe_budget
from qbench.gating.evidence import Evidence
from qbench.gating.sequential_test import (
    ANALYSES,
    CONTROL_LEVEL,
    NotRun,
    Rerun,
)
from qbench.gating.verdict import GateRule, LiveTimes, Verdict, format_level
from qbench.record.schema import Record, Speedup
from qbench.stats.interval_type import Interval

INVALID_LIVE = "live  ended in process pair {}"
LOOKS = f"{len(ANALYSES)} looks share 5 %"


def check_latency(evidence: Evidence, record: Record) -> Verdict | None:
    """Is the case slower than the baseline's by more than the tolerance?

    PASS at once where the artifact is the baseline's and the same versions run it. Else decided on both artifacts run
    again, or on the two stored speed-ups, each in units of its own run's fp32.
    """
    tolerance, written = evidence.policy.latency.max_regression, evidence.policy.latency.model_fields_set
    if tolerance is None or (evidence.baseline is None and "max_regression" not in written):
        return None
    check = evidence.limit(record, "latency", "gate.latency.max_regression", 1 + tolerance)
    rule = evidence.rule(check, "time")
    if evidence.baseline is None:
        return rule.verdict("MISSING", "no baseline", "write one with `qbench baseline RUN` and commit it")
    if evidence.base_of(record.case.id) is None:
        return None  # a case that the baseline lacks is MISSING as a case
    if above_peak.is_impossible(record):
        return _refuse_impossible(rule, record)
    if (unchanged := evidence.judge_unchanged(rule, record)) is not None:
        return unchanged
    rerun = evidence.reruns.get(record.case.id)
    if isinstance(rerun, Rerun):
        versions = describe_versions(evidence, record, rerun)
        return _check_rerun(replace(rule, way="live"), check, rerun, tolerance, versions)
    delta, updates = evidence.deltas[record.case.id], evidence.name_updates(record)
    return _check_stored(replace(rule, way="stored"), check, delta, tolerance, rerun, updates)


def check_update(evidence: Evidence, record: Record) -> Verdict | None:
    """Has another version of the runtime made the case slower, where both artifacts were run again under the new one,
    so that their times cannot tell? By the two stored speed-ups, each under its own version."""
    tolerance, rerun = evidence.policy.latency.max_regression, evidence.reruns.get(record.case.id)
    if tolerance is None or not isinstance(rerun, Rerun) or rerun.own_versions:
        return None
    if evidence.base_of(record.case.id) is None:
        return None  # what the baseline says of the case is not believed
    updates = evidence.name_updates(record)
    if not updates:
        return None
    check = evidence.limit(record, "latency update", "gate.latency.max_regression", 1 + tolerance)
    rule, delta = evidence.rule(check, "time", way="stored"), evidence.deltas[record.case.id]
    return _check_stored(rule, check, delta, tolerance, None, updates)


def _refuse_impossible(rule: GateRule, record: Record) -> Verdict:
    assert record.roofline is not None
    reason = (
        f"{formatting.share(record.roofline.peak_fraction, 0)} of the int8 peak of this core: faster than "
        "possible; its artifact skips work, or its multiply-accumulates are miscounted"
    )
    return rule.verdict("INVALID", "faster than possible", reason)


def _check_rerun(rule: GateRule, check: LimitCheck, rerun: Rerun, tolerance: float, versions: str) -> Verdict:
    if rerun.reason is not None:
        return rule.verdict("INVALID", INVALID_LIVE.format(len(rerun.pairs) + 1), rerun.reason)
    analysis, times = rerun.analysis, list_times(rerun)
    if analysis is None:
        return refuse_budget(rule, rerun)
    measured = _at_live_speed(check.record, times.contender)
    if above_peak.is_impossible(measured):
        return replace(_refuse_impossible(rule, measured), times=times)
    clauses = [
        f"live  {_format_times(times.baseline, times.contender)}",
        f"time {format_change(analysis.slowdown)} {format_level(analysis.level, LOOKS)}",
        f"tolerance {tolerance * 100:g} %",
        f"{analysis.pairs} process pairs, step {analysis.number} of at most {len(ANALYSES)}",
        f"noise check {format_change(analysis.control)} {format_level(CONTROL_LEVEL)}",
        versions,
    ]
    check = check.hold_interval(analysis.slowdown, analysis.level, freedom=analysis.freedom, doubt=analysis.doubt)
    verdict = rule.say_interval(check, "  ".join(filter(None, clauses)), improves=True)
    return replace(advise_live(verdict, analysis, rerun), times=times)


def refuse_budget(rule: GateRule, rerun: Rerun) -> Verdict:
    """INCONCLUSIVE: the time that may be spent was over before the first look."""
    verdict = rule.verdict("INCONCLUSIVE", f"live  {len(rerun.pairs)} of {ANALYSES[0]} process pairs")
    return replace(describe_budget(verdict, rerun), times=list_times(rerun))


def list_times(rerun: Rerun) -> LiveTimes:
    """The typical seconds of a call of each artifact that was run again: medians over the process pairs."""
    timed = [pair.seconds for pair in rerun.pairs if pair.seconds]
    typical = [statistics.median(arm) for arm in zip(*timed, strict=False)]
    return LiveTimes(
        baseline=typical[0] if typical else None,
        contender=typical[1] if len(typical) > 1 else None,
        fp32=typical[2] if len(typical) > 2 else None,
        pairs=len(rerun.pairs),
        spent=rerun.spent,
    )


def _at_live_speed(record: Record, seconds: float | None) -> Record:
    """The record with the share of the peak that the live time means."""
    roofline, latency = record.roofline, record.latency
    if seconds is None or roofline is None or roofline.peak_fraction is None or latency is None:
        return record
    if latency.p50_seconds is None:
        return record
    share = roofline.peak_fraction * latency.p50_seconds / seconds
    return replace(record, roofline=replace(roofline, peak_fraction=share))


def _format_times(*seconds: float | None) -> str:
    """``1.203 -> 1.215 ms``; empty where they are not known."""
    return " -> ".join(formatting.duration(value) for value in seconds) if None not in seconds else ""


def format_change(ratio: Interval) -> str:
    """``+1.2 % [-0.3, +2.7]``: a ratio of times as a change."""
    low, high = (None if limit is None else limit - 1 for limit in (ratio.low, ratio.high))
    change = Interval(value=ratio.value - 1, low=low, high=high)
    amount = formatting.number(change, scale=100, signed=True)
    return f"{amount} % {formatting.limits(change, scale=100, signed=True)}".rstrip()


def describe_versions(evidence: Evidence, record: Record, rerun: Rerun) -> str:
    """Under which versions both artifacts ran, where they have changed since the baseline; else empty."""
    if rerun.own_versions:
        return evidence.name_updates(record)
    new, changed = evidence.info.versions, evidence.list_updates(record)
    return f"both under {', '.join(f'{name} {new.get(name)}' for name in changed)}" if changed else ""


def _check_stored(
    rule: GateRule,
    check: LimitCheck,
    delta: compare.Delta,
    tolerance: float,
    not_run: NotRun | None,
    updates: str,
) -> Verdict:
    record = check.record
    why = f"  not run again: {formatting.one_line(not_run.reason)}" if not_run else ""
    assert delta.base is not None
    if record.speedup is None or delta.base.speedup is None:
        where = "this run" if record.speedup is None else "the baseline"
        return rule.verdict("MISSING", f"no speed-up{why}", f"latency was not measured in {where}")
    if delta.slowdown is None:
        reason = f"{delta.invalid} differs between the baseline and this run"
        return rule.verdict("INVALID", "  ".join(filter(None, ("not comparable", updates))) + why, reason)
    text = _describe_stored(delta.base.speedup, record.speedup, delta.slowdown, delta.level, tolerance)
    text = "  ".join(filter(None, (text, updates))) + why
    doubt = find_doubt(record.speedup, tolerance / 2, "half the tolerance")
    check = check.hold_interval(delta.slowdown, delta.level, freedom=delta.freedom, doubt=doubt)
    verdict = rule.say_interval(check, text, improves=True)
    fewer = min(record.speedup, delta.base.speedup, key=lambda speedup: speedup.processes)
    return advise_stored(verdict, not_run, fewer)


def _describe_stored(old: Speedup, new: Speedup, slowdown: Interval, level: float, tolerance: float) -> str:
    decimals = formatting.decimals(Interval(value=new.value, low=new.low, high=new.high))
    before, after = formatting.fixed(old.value, decimals), formatting.fixed(new.value, decimals)
    change = f"time {format_change(slowdown)} {format_level(level)}"
    return f"stored  speed-up {before} -> {after}  {change}  tolerance {tolerance * 100:g} %"


def check_speedup(evidence: Evidence, record: Record) -> Verdict | None:
    """Does the case hold the promised speed-up over its like-for-like fp32? Decided on both run again, where they were,
    else on what the run itself measured side by side."""
    check, speedup = limits.check_speedup(record, evidence.limits), record.speedup
    if check is None:
        return None
    rule = evidence.rule(check, "time")
    if above_peak.is_impossible(record):
        return _refuse_impossible(rule, record)
    rerun = evidence.reruns.get(record.case.id)
    if isinstance(rerun, Rerun) and (rerun.promise is not None or rerun.reason is not None):
        return _check_promise(replace(rule, way="live"), check, rerun)
    rule = replace(rule, way="stored")
    if speedup is None:
        return rule.verdict("MISSING", "no speed-up", "latency was not measured")
    measured = f"{formatting.with_limits(check.measured)} {format_level(speedup.level)}"
    return advise_speedup(rule.say_interval(check, f"{measured}  promised {check.threshold:g}"), speedup)


def _check_promise(rule: GateRule, check: LimitCheck, rerun: Rerun) -> Verdict:
    if rerun.promise is None:
        return rule.verdict("INVALID", INVALID_LIVE.format(len(rerun.pairs) + 1), rerun.reason)
    analysis, times = rerun.promise, list_times(rerun)
    ratio = f"{formatting.with_limits(analysis.slowdown)} {format_level(analysis.level, LOOKS)}"
    clauses = [
        f"live  fp32 {_format_times(times.fp32, times.contender)}",
        f"{ratio}  promised {check.threshold:g}",
        f"{analysis.pairs} process pairs, step {analysis.number} of at most {len(ANALYSES)}",
    ]
    check = check.hold_interval(analysis.slowdown, analysis.level, freedom=analysis.freedom, doubt=analysis.doubt)
    return replace(advise_live(rule.say_interval(check, "  ".join(clauses)), analysis, rerun), times=times)
