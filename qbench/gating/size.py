"""The gate's rules on the size of an artifact: against the like-for-like fp32, and against the baseline.

None means that the rule does not concern the case or was not asked for.
"""

from __future__ import annotations

from qbench import formatting
from qbench.compare import compare
from qbench.decide import limits
from qbench.gating.evidence import Evidence
from qbench.gating.verdict import Verdict
from qbench.record.schema import Record


def check_size(evidence: Evidence, record: Record) -> Verdict | None:
    """Are the artifact's bytes within the promised share of the like-for-like fp32's?"""
    check = limits.check_size(record, evidence.records, evidence.limits)
    if check is None:
        return None
    rule, fp32 = evidence.rule(check, "size"), compare.like_for_like(record, evidence.records)
    if check.measured is None:
        return rule.verdict("MISSING", "no size", "the artifact of the case or of its fp32 was not recorded")
    assert record.artifact is not None
    assert fp32 is not None
    assert fp32.artifact is not None
    new, old = record.artifact.size_bytes, fp32.artifact.size_bytes
    change = f"{formatting.size(old)} -> {formatting.size(new)}"
    text = f"{change}  ratio {check.measured.value:.3f}  budget {check.threshold:g}"
    return rule.say_number(check, text, f"{new} of {old} bytes")


def check_growth(evidence: Evidence, record: Record) -> Verdict | None:
    """Has the artifact grown against the baseline's by more than ``size.max_growth``?"""
    allowed = evidence.policy.size.max_growth
    delta = evidence.deltas.get(record.case.id)
    if allowed is None or delta is None or delta.size_ratio is None:
        return None
    assert delta.base is not None
    assert delta.base.artifact is not None
    assert record.artifact is not None
    old, new = delta.base.artifact.size_bytes, record.artifact.size_bytes
    check = evidence.limit(record, "size growth", "gate.size.max_growth", 1 + allowed).hold_number(delta.size_ratio)
    text = f"{formatting.size(old)} -> {formatting.size(new)}  {new - old:+d} bytes  tolerance {allowed * 100:g} %"
    reason = f"{new} bytes, {old} in the baseline"
    return evidence.rule(check, "size").say_number(check, text, reason, improved=1 / (1 + allowed))
