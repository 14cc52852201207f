"""The gate's rules on size and accuracy: a record and what it is held against -> a ``Verdict`` or None.

None means that the rule does not concern the case or was not asked for. A rule that was asked for and cannot be
judged is MISSING or INVALID.
"""

from __future__ import annotations

from dataclasses import replace

from qbench import compare, compare_words, decide, luck, wording
from qbench.gate_evidence import Evidence, Verdict
from qbench.record import Accuracy, Record
from qbench.stored import MetricInfo
from qbench.suite.accuracy import DEFAULTS

# An archive's own names and versions move a few bytes; a layer that fell back to float moves far more.
SIZE_GROWTH = 0.01


def size(evidence: Evidence, record: Record) -> Verdict | None:
    """Are the artifact's bytes within the promised share of the like-for-like fp32's?"""
    budget = evidence.policy.size.max_ratio
    if budget is None:
        return None
    blank = Verdict(
        outcome="MISSING",
        case=record.case.id,
        rule="size",
        place=evidence.place("gate.size.max_ratio"),
        text="no size",
        reason="the artifact of the case or of its fp32 was not recorded",
        threshold=budget,
    )
    fp32 = compare.like_for_like(record, evidence.records)
    if record.artifact is None or fp32 is None or fp32.artifact is None or not fp32.artifact.size_bytes:
        return blank
    own, full = record.artifact.size_bytes, fp32.artifact.size_bytes
    text = f"{wording.size(full)} -> {wording.size(own)}  ratio {own / full:.3f}  budget {budget:g}"
    return _exact(blank, own / full, budget, text, f"{own} of {full} bytes")


def size_growth(evidence: Evidence, record: Record) -> Verdict | None:
    """Has the artifact grown against the baseline's by more than ``SIZE_GROWTH``? None without a pair."""
    delta = evidence.deltas.get(record.case.id)
    if delta is None or delta.size_ratio is None or delta.base is None:
        return None
    assert delta.base.artifact is not None
    assert record.artifact is not None
    old, new = delta.base.artifact.size_bytes, record.artifact.size_bytes
    blank = Verdict(
        outcome="MISSING",
        case=record.case.id,
        rule="size growth",
        place=evidence.place("gate.size"),
        text="",
        threshold=1 + SIZE_GROWTH,
    )
    text = f"{wording.size(old)} -> {wording.size(new)}  {new - old:+d} bytes  tolerance {SIZE_GROWTH * 100:g} %"
    return _exact(blank, delta.size_ratio, 1 + SIZE_GROWTH, text, f"{new} bytes, {old} in the baseline")


def accuracy(evidence: Evidence, record: Record) -> Verdict | None:
    """Is the metric within the margin of the like-for-like fp32's, by the paired non-inferiority test?

    Without a recorded change it is MISSING where the suite writes ``gate.accuracy``; a data set without labels
    under a suite that does not is not judged.
    """
    spec, metric = evidence.policy.accuracy, evidence.info.metric
    blank = Verdict(
        outcome="MISSING",
        case=record.case.id,
        rule=_metric_name(evidence),
        place=evidence.place("gate.accuracy.margin"),
        text="no accuracy",
        reason="neither labels nor predictions of its fp32 to compare with",
    )
    fp32 = compare.like_for_like(record, evidence.records)
    scores = record.accuracy
    if metric is None or scores is None or scores.delta is None:
        return blank if spec.model_fields_set else None
    if scores.metric != _metric_name(evidence):
        reason = f"the run measured {scores.metric}, the suite gates {_metric_name(evidence)}"
        return replace(blank, outcome="INVALID", text="not comparable", reason=reason)
    test = compare.accuracy_test(record, metric, spec.margin, lambda: evidence.pairs(record, fp32) if fp32 else None)
    assert test is not None
    worse = {"PASS": None, "FAIL": "worse by more than the margin", "INCONCLUSIVE": _undecided(test, scores.n)}
    return replace(
        blank,
        outcome=test.outcome,
        text=_accuracy_text(scores, test, metric, spec.margin)
        + _luck_text(luck.luck(record, fp32, metric, spec.margin, evidence.pairs), metric),
        reason=worse[test.outcome],
        value=test.delta.value,
        low=test.delta.low,
        high=test.delta.high,
        level=test.level,
        threshold=-spec.margin / metric.scale,
        p_value=None if test.p_worse is None else decide.scaled(test.p_worse, test.level),
        examples=None if test.examples is None else max(test.examples, scores.n + 1),
        mcnemar_p=None if scores.flips is None else decide.mcnemar_midp(scores.flips.harmful, scores.flips.beneficial),
    )


def _metric_name(evidence: Evidence) -> str:
    """What the suite gates: the metric that it names, else what the run's data decided on."""
    spec, metric = evidence.policy.accuracy, evidence.info.metric
    return metric.name if metric is not None and not spec.is_named and metric.name in DEFAULTS else spec.metric


def _accuracy_text(scores: Accuracy, test: decide.NonInferiority, metric: MetricInfo, margin: float) -> str:
    change = compare.oriented(test.delta, metric.sign)
    places = max(metric.least, wording.decimals(change, metric.scale))
    old, new = ((scores.value - change.value) * metric.scale, scores.value * metric.scale)
    moved = f"{wording.fixed(old, places)} -> {wording.fixed(new, places)}{' %' if metric.percent else ''}"
    by = wording.number(change, scale=metric.scale, signed=True, least=metric.least)
    limits = wording.limits(change, scale=metric.scale, signed=True, least=metric.least)
    amount = " ".join(part for part in (by, metric.unit, limits) if part)
    shown = f"{margin:.1f}" if metric.percent else f"{margin:g}"
    flips = "" if scores.flips is None else f"  flips {compare_words.flips(scores.flips)}"
    return f"{moved}  {amount}  margin {shown}{flips}"


def _luck_text(found: luck.Luck | None, metric: MetricInfo) -> str:
    """What the worst of several calibration seeds would be; empty where one was drawn."""
    if found is None or found.test is None:
        return ""
    return f"  worst of {len(found.values)} calibration seeds {luck.changed(found, metric)}, {found.test.outcome}"


def _undecided(test: decide.NonInferiority, n: int) -> str:
    if test.delta.low is None:
        return "the examples support no interval"
    needed = compare_words.would_decide(test, n)
    if needed is None:
        return "the interval spans the margin"
    return f"the interval spans the margin; {needed} would decide, there are {n:,}"


def _exact(verdict: Verdict, value: float, budget: float, text: str, reason: str) -> Verdict:
    """The verdict on a number without an interval: PASS up to the budget."""
    passed = value <= budget
    return replace(
        verdict, outcome="PASS" if passed else "FAIL", text=text, reason=None if passed else reason, value=value
    )
