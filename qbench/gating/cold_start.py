"""The gate's rules on the cold start (loading the artifact in a fresh process, and the first call): a longest time, and
its growth against the baseline's artifact, started again here and now.

None means that the rule does not concern the case or was not asked for.
"""

from __future__ import annotations

from dataclasses import replace

from qbench import formatting
from qbench.decide import limits
from qbench.gating.deciding import AGAIN, advise_live, advise_processes
from qbench.gating.evidence import Evidence
from qbench.gating.latency import INVALID_LIVE, LOOKS, describe_versions, format_change, refuse_budget
from qbench.gating.sequential_test import Rerun
from qbench.gating.verdict import Verdict, format_level
from qbench.record.schema import Record


def check_limit(evidence: Evidence, record: Record) -> Verdict | None:
    """Does it start within ``cold_start.max_seconds``, by the medians over the run's processes?"""
    check = limits.check_cold_start(record, evidence.limits)
    if check is None:
        return None
    rule, start = evidence.rule(check, "cold start"), record.cold_start
    if check.measured is None:
        return rule.verdict("MISSING", "no cold start", "latency was not measured")
    assert start is not None
    seconds, most = (formatting.duration(amount) for amount in (check.measured.value, check.threshold))
    verdict = rule.say_interval(check, f"{seconds}  at most {most}  {start.processes} processes")
    return advise_processes(verdict, start.processes, "cold_starts")


def check_growth(evidence: Evidence, record: Record) -> Verdict | None:
    """Does it start slower than the baseline's by more than ``cold_start.max_regression``? What another version of the
    runtime takes to load shows only where each side ran under its own."""
    allowed, base = evidence.policy.cold_start.max_regression, evidence.base_of(record.case.id)
    if allowed is None or base is None:
        return None
    check = evidence.limit(record, "cold start growth", "gate.cold_start.max_regression", 1 + allowed)
    rule = evidence.rule(check, "cold start", way="live")
    if (unchanged := evidence.judge_unchanged(rule, record)) is not None:
        return unchanged
    rerun = evidence.reruns.get(record.case.id)
    if evidence.is_same_file(record) and not isinstance(rerun, Rerun):
        text = f"not run again  {evidence.name_updates(record)}"
        reason = "the version that the baseline ran under is not here; `--against REF` starts each side under its own"
        return replace(rule, way="stored").verdict("INCONCLUSIVE", text, reason)
    if not isinstance(rerun, Rerun):
        why = "" if rerun is None else f": {formatting.one_line(rerun.reason)}"
        reason = f"stored starts are for trends only, and the artifacts were not run again{why}"
        verdict = replace(rule, way="stored").verdict("INCONCLUSIVE", "not run again", reason)
        return replace(verdict, reason=f"{reason}; {AGAIN} would decide", decides=AGAIN) if rerun is None else verdict
    if rerun.reason is not None:
        return rule.verdict("INVALID", INVALID_LIVE.format(len(rerun.pairs) + 1), rerun.reason)
    if rerun.start is None:
        return refuse_budget(rule, rerun)
    analysis = rerun.start
    clauses = [
        f"live  load and first call {format_change(analysis.slowdown)} {format_level(analysis.level, LOOKS)}",
        f"tolerance {allowed * 100:g} %",
        f"{analysis.pairs} process pairs",
        describe_versions(evidence, record, rerun),
    ]
    check = check.hold_interval(analysis.slowdown, analysis.level, freedom=analysis.freedom)
    return advise_live(rule.say_interval(check, "  ".join(filter(None, clauses)), improves=True), analysis, rerun)
