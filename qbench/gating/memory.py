"""The gate's rules on memory: the peak of the resident set of the measuring process, and its growth against the
baseline, where that was measured on the same machine. Other versions of a runtime are named: what they take is part of
the growth.

None means that the rule does not concern the case or was not asked for.
"""

from __future__ import annotations

from qbench import formatting
from qbench.decide import limits
from qbench.gating.evidence import Evidence
from qbench.gating.verdict import Verdict
from qbench.machine import fingerprint
from qbench.record.schema import Record


def check_limit(evidence: Evidence, record: Record) -> Verdict | None:
    """Is the peak within ``memory.max_bytes``?"""
    check, most = limits.check_peak_memory(record, evidence.limits), evidence.policy.memory.max_bytes
    if check is None:
        return None
    rule, peak = evidence.rule(check, "memory"), _peak(record)
    if peak is None:
        return rule.verdict("MISSING", "no peak", "the memory of the measuring process is not known")
    text = f"peak {formatting.size(peak)}  at most {formatting.size(most)}"
    return rule.say_number(check, text, f"{peak} bytes, {most} are allowed")


def check_growth(evidence: Evidence, record: Record) -> Verdict | None:
    """Has the peak grown by more than ``memory.max_regression`` against the baseline?"""
    allowed, base = evidence.policy.memory.max_regression, evidence.base_of(record.case.id)
    if allowed is None or base is None:
        return None
    assert evidence.baseline is not None
    check = evidence.limit(record, "memory growth", "gate.memory.max_regression", 1 + allowed)
    rule = evidence.rule(check, "memory")
    if (unchanged := evidence.judge_unchanged(rule, record)) is not None:
        return unchanged
    before, now = _peak(base), _peak(record)
    if before is None or now is None or not before:
        where = "this run" if now is None else "the baseline"
        return rule.verdict("MISSING", "no peak", f"the memory of the measuring process is not known in {where}")
    field = fingerprint.comparable(evidence.baseline.info.environment, evidence.info.environment)
    if field is not None:
        reason = f"{field} differs between the baseline and this run; write a new baseline here"
        return rule.verdict("INVALID", "not comparable", reason)
    change = f"peak {formatting.size(before)} -> {formatting.size(now)}  tolerance {allowed * 100:g} %"
    text = "  ".join(filter(None, (change, evidence.name_updates(record))))
    reason = f"{now} bytes, {before} in the baseline"
    return rule.say_number(check.hold_number(now / before), text, reason, improved=1 / (1 + allowed))


def _peak(record: Record) -> int | None:
    return None if record.memory is None else record.memory.peak_rss_bytes
