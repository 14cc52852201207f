"""The gate's rule on other hosts: an int8 artifact loses there no more than the margin against its own answers where it
was built.

The rule holds for the native case; the artifact's other hosts are cases of the same run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qbench.decide.limits import LimitCheck
from qbench.gating.accuracy import describe_change
from qbench.gating.evidence import Evidence
from qbench.gating.verdict import GateRule, Verdict
from qbench.portability.compare_hosts import is_emulated, is_other_file, judge_change
from qbench.record.schema import NATIVE, Record, place_on

KEY = "gate.portability.hosts"


def check_hosts(evidence: Evidence, record: Record) -> list[Verdict]:
    """A verdict for each host that the rule names; none for cases of other hosts, which it is about."""
    if record.case.host != NATIVE:
        return []
    return [_check_host(evidence, record, host) for host in evidence.policy.portability.hosts]


def _check_host(evidence: Evidence, native: Record, host: str) -> Verdict:
    """Whether the artifact of a native case is as good on a host; MISSING where it was not tried there."""
    check = evidence.limit(native, f"on {host}", KEY)
    rule = evidence.rule(check, "portability")
    there = _find_case(evidence, native, host)
    if there is None or there.status == "skipped":
        advice = f"run the suite with hosts: [native, {host}]" if there is None else f"{there.reason}"
        return rule.verdict("MISSING", f"not tried on {host}", advice)
    if there.status == "failed":
        return rule.verdict("FAIL", f"no answer on {host}", there.reason)
    if is_other_file(there, native):
        return rule.verdict("MISSING", f"another file ran on {host}", "its sha256 is not that of the native case's")
    return _judge_answers(evidence, rule, check, there)


def _judge_answers(evidence: Evidence, rule: GateRule, check: LimitCheck, there: Record) -> Verdict:
    """The verdict on the metric there against the metric where the artifact was built, example by example: the same
    bits lose nothing, however few examples there are; of an emulated host on the bits of the examples it answered."""
    native = check.record
    if is_emulated(there.host):
        return _judge_bits(evidence, rule, native, there)
    outputs = evidence.change(there, native)
    if outputs is not None and outputs.same_bits:
        return replace(rule.verdict("PASS", f"the same bits on {there.case.host}"), value=0.0)
    metric, policy = evidence.info.metric, evidence.policy
    margin = policy.accuracy.margin if policy.portability.margin is None else policy.portability.margin
    pair = evidence.pairs(there, native)
    if metric is None or pair is None or native.accuracy is None or there.accuracy is None:
        return rule.verdict("MISSING", "no accuracy", "the predictions of both hosts are not stored")
    new, old = (np.asarray(values) for values in pair)
    test = judge_change(new, old, metric, margin)
    text = describe_change(native.accuracy.value, there.accuracy.value, test, metric, margin, None)
    failed = f"worse on {there.case.host} than where it was built by more than the margin"
    bounded = replace(rule, threshold=-margin / metric.scale)
    return bounded.say_test(check.hold_test(test), text, failed=failed, n=len(new), flips=None)


def _judge_bits(evidence: Evidence, rule: GateRule, native: Record, there: Record) -> Verdict:
    """PASS where each example that was emulated has the same bits; else INCONCLUSIVE, since so few are no sample."""
    assert there.host is not None
    outputs, examples = evidence.change(there, native), there.host.examples
    if outputs is None or examples is None:
        return rule.verdict("MISSING", "no answers", "the predictions of both hosts are not stored")
    text = f"{outputs.n - outputs.differing} of {outputs.n} examples ({examples.chosen}, of {examples.of:,}) the same"
    if outputs.same_bits:
        return rule.verdict("PASS", text, None)
    reason = "examples that were chosen are no sample: whether it loses more than the margin takes all of them, on avx2"
    return rule.verdict("INCONCLUSIVE", text, reason)


def _find_case(evidence: Evidence, native: Record, host: str) -> Record | None:
    """The case of the same artifact, threads and batch on a host."""
    key = place_on(native.case, host)
    return next((record for record in evidence.records if record.case == key), None)
