"""Every rule of the gate, held against the records of a run: one ``Verdict`` per case and rule; pure.

    rule           judged                                              asked for by
    run            the suite's latest run has a case that is ok        a suite's name in place of a run's folder
    run            neither it nor the baseline is a quick look         always
    case           planned cases ran, both have the same cases         always
    baseline       one artifact has the same figures in both           a baseline
    latency        slowdown against the baseline <= tolerance          a baseline (latency.max_regression)
    … update       the same under another version of the runtime       the same, both artifacts run again
    speed-up       speed-up over the like-for-like fp32 >= promise     latency.min_speedup
    size           bytes / bytes of the like-for-like fp32 <= budget   size.max_ratio
    size growth    bytes / bytes in the baseline                       a baseline (size.max_growth)
    <metric>       non-inferior to the like-for-like fp32              accuracy, or labels in the data
    … regression   non-inferior to the baseline's int8                 a baseline (accuracy.max_regression)
    cold start     load and first call, seconds                        cold_start.max_seconds
    … growth       the same, both run again                            cold_start.max_regression
    memory         peak of the resident set                            memory.max_bytes
    … growth       the same against the baseline                       memory.max_regression
    coverage       share in int8                                       coverage.min_share
    … drop         the same against the baseline                       a baseline (coverage.max_drop)
    on <host>      loses there no more than the margin                 portability.hosts

Latency is judged on both artifacts run again (``rerun``), else on stored speed-ups.
What cannot be judged is MISSING or INVALID, never PASS. A case whose artifact is the baseline's, byte by byte, run by
the same versions on the same kind of host, is PASS where it is held against the baseline. The rules on one case that
rest on samples of one kind (time: latency and speed-up; metric: against fp32 and against the baseline) share one error:
a FAIL must survive Holm's correction over them, else it is INCONCLUSIVE. What that does to the exit code is the suite's
to say (``gate.inconclusive``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from qbench.compare import compare
from qbench.decide.cases import is_unmeasured
from qbench.gating import accuracy, baseline_figures, cold_start, coverage, latency, memory, portability, size
from qbench.gating.deciding import refuse_pairs
from qbench.gating.evidence import Evidence
from qbench.gating.exit_codes import Effect, Outcome
from qbench.gating.sequential_test import NotRun, Rerun
from qbench.gating.verdict import GateRule, Verdict
from qbench.machine import fingerprint
from qbench.portability.compare_hosts import OutputChange, is_emulated
from qbench.record.example_scores import ExampleScores
from qbench.record.schema import Record
from qbench.record.stored_run import RunInfo
from qbench.stats import multiple_testing
from qbench.stats.multiple_testing import FAMILY_ERROR

if TYPE_CHECKING:
    from qbench.gating.baseline import Baseline
    from qbench.stats.jackknife import FactScore
    from qbench.suite import GateSpec


def judge_records(
    records: Sequence[Record],
    info: RunInfo,
    policy: GateSpec,
    *,
    place: Callable[[str], str],
    baseline: Baseline | None = None,
    pairs: compare.Pairs = lambda record, fp32: None,
    examples: Callable[[Record], ExampleScores | None] = lambda record: None,
    score_of_facts: FactScore | None = None,
    change: Callable[[Record, Record], OutputChange | None] = lambda record, native: None,
    reruns: Mapping[str, Rerun | NotRun] | None = None,
    ref: str | None = None,
) -> tuple[Verdict, ...]:
    """Every verdict in the order of the records, at least one; pure.

    ``place`` turns a key of the suite (``gate.accuracy.margin``) into file:line. ``baseline`` None: there is none.
    ``examples`` gives what a record's score rests on, to be held against what the baseline keeps, ``change`` its
    outputs against those of another record.
    ``reruns``: by case, what running both artifacts again gave, or why that could not be. ``ref``: the commit that the
    baseline was built from, where that is no committed file.
    """
    deltas: dict[str, compare.Delta] = {}
    if baseline is not None:
        field = fingerprint.comparable(baseline.info.environment, info.environment)
        deltas = {delta.case: delta for delta in compare.compare(baseline.records, records, incomparable=field)}
    evidence = Evidence(
        records=records,
        info=info,
        policy=policy,
        place=place,
        baseline=baseline,
        deltas=deltas,
        pairs=pairs,
        examples=examples,
        score_of_facts=score_of_facts,
        change=change,
        reruns=reruns or {},
        ref=ref,
    )
    verdicts = [
        verdict for record in records for verdict in _check_record(evidence.of_case(record.case), record)
    ] + _find_absent(evidence)
    if verdicts:
        return tuple(verdicts)
    return (_case_verdict(evidence, info.suite.name, "MISSING", "nothing to judge", "no int8 case was measured"),)


def _check_record(evidence: Evidence, record: Record) -> list[Verdict]:
    case = record.case.id
    if record.status == "failed":
        reason = f"{record.stage}: {record.reason}" if record.stage else str(record.reason)
        return [_case_verdict(evidence, case, "FAIL", "failed", reason)]
    if record.status == "skipped":
        reason = f"skipped: {record.reason}"
        return [_report_gone(evidence, case, reason)] if evidence.base_of(case) else []
    wrong = baseline_figures.check_figures(evidence, record)
    apart = [] if wrong is None else [wrong]
    if record.case.mode == "fp32" or is_emulated(record.host):
        return apart
    if wrong is not None:
        evidence = baseline_figures.without_base(evidence, record)
    elif evidence.baseline is not None and evidence.base_of(case) is None:
        apart = [_report_new(evidence, case)]
    checks = (
        latency.check_latency,
        latency.check_update,
        latency.check_speedup,
        size.check_size,
        size.check_growth,
        accuracy.check_accuracy,
        accuracy.check_regression,
        cold_start.check_limit,
        cold_start.check_growth,
        memory.check_limit,
        memory.check_growth,
        coverage.check_share,
        coverage.check_drop,
    )
    able = [check for check in checks if not (is_unmeasured(record) and check in _MEASURED)]
    verdicts = [verdict for check in able if (verdict := check(evidence, record)) is not None]
    verdicts += portability.check_hosts(evidence, record)
    return [*apart, *settle(correct_for_rules(verdicts), evidence, record)]


NEW = "not in the baseline"
# What a case whose answers are predicted has nothing to show for.
_MEASURED = (
    latency.check_latency,
    latency.check_update,
    latency.check_speedup,
    cold_start.check_limit,
    cold_start.check_growth,
    memory.check_limit,
    memory.check_growth,
)


def _report_gone(evidence: Evidence, case: str, reason: str) -> Verdict:
    """A case that only the baseline has."""
    return _settle_missing(evidence, _case_verdict(evidence, case, "MISSING", "the baseline has it", reason), "gone")


def _report_new(evidence: Evidence, case: str) -> Verdict:
    """A case that only the run has, or that failed or was skipped when the baseline was made."""
    before = evidence.deltas[case].base
    text = NEW if before is None else f"{before.status} in the baseline"
    later = "add it with `qbench baseline RUN`" if evidence.ref is None else f"{evidence.ref} does not have it"
    reason = f"there is nothing to hold it against; {later}"
    return _settle_missing(evidence, _case_verdict(evidence, case, "MISSING", text, reason), "new")


def _settle_missing(evidence: Evidence, verdict: Verdict, side: Literal["gone", "new"]) -> Verdict:
    """The verdict on a case that only one side has, with what it does by ``gate.missing``."""
    skipped: Effect | None = "skip" if getattr(evidence.policy.missing, side) == "skip" else None
    return replace(verdict, place=evidence.place(f"gate.missing.{side}"), settled=skipped)


def _find_absent(evidence: Evidence) -> list[Verdict]:
    """Cases without a record: planned but not reached, in the baseline and gone, or of no record of the baseline."""
    present = {record.case.id for record in evidence.records}
    planned = [case for case in evidence.info.plan.cases if case not in present]
    skipped = {skip.id: f"skipped: {skip.reason}" for skip in evidence.info.plan.skipped}
    absent = [
        case for case in evidence.deltas if case not in present and case not in planned and evidence.base_of(case)
    ]
    contradictions = {} if evidence.baseline is None else evidence.baseline.contradictions
    wrong = [
        baseline_figures.report_contradiction(evidence, case, contradiction)
        for case, contradiction in contradictions.items()
        if case not in present
    ]
    return (
        wrong
        + [
            _case_verdict(
                evidence, case, "MISSING", "no record", "the run did not reach it; go on with `qbench run --resume`"
            )
            for case in planned
        ]
        + [_report_gone(evidence, case, skipped.get(case, "it is not in this run")) for case in absent]
    )


def _case_verdict(evidence: Evidence, case: str, outcome: Outcome, text: str, reason: str) -> Verdict:
    """A verdict on whether the case is there at all."""
    return GateRule(name="case", kind="case", case=case, place=evidence.place("matrix")).verdict(outcome, text, reason)


# --- the verdicts on one case, judged together ---------------------------------------------------------------------


def correct_for_rules(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts on one case, a FAIL by samples turned INCONCLUSIVE where it does not survive Holm over the rules of
    its kind."""
    corrected = {}
    for kind in {verdict.kind for verdict in verdicts}:
        sampled = [(v, v.p_value) for v in verdicts if v.kind == kind and v.p_value is not None]
        adjusted = multiple_testing.adjust_by_holm([alone for _, alone in sampled])
        for (verdict, alone), p in zip(sampled, adjusted, strict=True):
            # Rounding may leave a single rule's own 5 % a last digit above it.
            if verdict.outcome == "FAIL" and p > FAMILY_ERROR * (1 + 1e-9):
                corrected[id(verdict)] = _withdraw(verdict, alone, p, len(sampled))
    return [corrected.get(id(verdict), verdict) for verdict in verdicts]


def _withdraw(verdict: Verdict, alone: float, p: float, rules: int) -> Verdict:
    """INCONCLUSIVE: a FAIL, ``alone`` at its p-value, that does not survive the correction for so many rules."""
    times = multiple_testing.estimate_sample_factor(alone, rules)
    reason = f"fails alone, but {rules} rules of its kind were judged at once (Holm: p = {p:.2g})"
    verdict = replace(verdict, outcome="INCONCLUSIVE", reason=reason)
    if verdict.times is not None:
        return refuse_pairs(verdict, math.ceil(times * verdict.times.pairs))
    more = f"about {times:.1f} times as many {'examples' if verdict.kind == 'metric' else 'processes'}"
    return replace(verdict, reason=f"{reason}; {more} would decide", decides=more)


def settle(verdicts: Sequence[Verdict], evidence: Evidence, record: Record) -> list[Verdict]:
    """The verdicts on one case, each INCONCLUSIVE with what it does by ``gate.inconclusive``, each IMPROVED with what
    to do about it.

    ``hold`` holds where the samples point to a change for the worse, and where there are none. What was so in the
    baseline is no change: the rule on the metric against fp32 holds only if the metric is worse than in the baseline,
    too, and no rule holds a case whose artifact is the baseline's and run by the same versions.
    """
    regressions = [verdict for verdict in verdicts if verdict.rule.endswith(accuracy.SUFFIX)]
    as_before = any(
        verdict.outcome in ("PASS", "IMPROVED", "INCONCLUSIVE") and not verdict.points_to_harm(evidence.changed_cases)
        for verdict in regressions
    )
    unchanged = evidence.is_unchanged(record)

    def settle_one(verdict: Verdict) -> Verdict:
        if verdict.outcome == "IMPROVED":
            return replace(verdict, reason=f"better than the baseline by more than the tolerance: {evidence.advice}")
        if verdict.outcome != "INCONCLUSIVE":
            return verdict
        treatment = evidence.policy.inconclusive
        if treatment != "hold":
            effect: Effect = "note" if treatment == "pass" else treatment
        elif unchanged or (verdict.kind == "metric" and as_before):
            effect = "note"
        else:
            harmful = verdict.p_harm is None or verdict.points_to_harm(evidence.changed_cases)
            effect = "hold" if harmful else "note"
        return replace(verdict, settled=effect)

    return [settle_one(verdict) for verdict in verdicts]
