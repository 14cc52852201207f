"""The gate's rules on the share of multiply-accumulates in int8: a smallest share, and a largest drop against the
baseline.

None means that the rule does not concern the case or was not asked for.
"""

from __future__ import annotations

from qbench import formatting
from qbench.decide import limits
from qbench.gating.evidence import Evidence
from qbench.gating.verdict import Verdict
from qbench.record.schema import Record


def check_share(evidence: Evidence, record: Record) -> Verdict | None:
    """Is at least ``coverage.min_share`` in int8?"""
    check, least = limits.check_coverage(record, evidence.limits), evidence.policy.coverage.min_share
    if check is None:
        return None
    rule, share = evidence.rule(check, "coverage"), _share(record)
    if share is None:
        return rule.verdict("MISSING", "no share", "not all multiply-accumulates of the artifact can be counted")
    text = f"{formatting.share(share)} {_name_format(record)}  at least {formatting.share(least)}"
    return rule.say_number(check, text, _name_float(record))


def check_drop(evidence: Evidence, record: Record) -> Verdict | None:
    """Has the share dropped by more than ``coverage.max_drop`` against the baseline? None without a pair."""
    allowed, base = evidence.policy.coverage.max_drop, evidence.base_of(record.case.id)
    before = None if base is None else _share(base)
    if allowed is None or before is None:
        return None
    check = evidence.limit(record, "coverage drop", "gate.coverage.max_drop", allowed)
    rule, now = evidence.rule(check, "coverage"), _share(record)
    if now is None:
        return rule.verdict("MISSING", "no share", "the baseline has a share, this artifact's cannot be counted")
    shares = f"{formatting.share(before)} -> {formatting.share(now)} {_name_format(record)}"
    text = f"{shares}  tolerance {allowed * 100:g} %"
    check = check.hold_number(round(before - now, 9))  # a share is a sum of floats: the last digits prove nothing
    return rule.say_number(check, text, _name_float(record), improved=-max(allowed, 1e-9))


def _share(record: Record) -> float | None:
    coverage = None if record.artifact is None else record.artifact.coverage
    return None if coverage is None else coverage.share_of(record.case.mode)


def _name_format(record: Record) -> str:
    assert record.artifact is not None
    assert record.artifact.coverage is not None
    return record.artifact.coverage.describe_format(record.case.mode)


def _name_float(record: Record) -> str:
    assert record.artifact is not None
    assert record.artifact.coverage is not None
    layers = record.artifact.coverage.float_layers
    return f"in floating point: {', '.join(layers[:8])}" if layers else f"less of it runs {_name_format(record)}"
