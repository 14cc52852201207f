"""The rules of the gate, one function each: a record and what it is held against -> a ``Verdict`` or None.

None means that the rule does not concern the case or was not asked for. A rule that was asked for and cannot be
judged is MISSING or INVALID.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from qbench import compare, decide, wording
from qbench.record import Accuracy, Interval, Record, Speedup
from qbench.stored import MetricInfo, RunInfo

if TYPE_CHECKING:
    from qbench.baseline import Baseline
    from qbench.suite import GateSpec

Outcome = Literal["PASS", "FAIL", "INCONCLUSIVE", "INVALID", "MISSING"]
FAMILY_ERROR = 0.05
# An archive's own names and versions move a few bytes; a layer that fell back to float moves far more.
SIZE_GROWTH = 0.01


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One rule on one case. ``text`` holds the numbers, ``reason`` why it is not PASS, ``place`` the rule's
    file:line. ``value``, its limits and ``threshold`` are raw (ratios, or the metric's own scale, better positive);
    ``p_value`` is the FAIL side's, scaled to a 5 % test, None where the rule does not rest on samples."""

    outcome: Outcome
    case: str
    rule: str
    place: str
    text: str
    reason: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    threshold: float | None = None
    p_value: float | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What every rule may look at. ``deltas`` are against the stored baseline, by case; ``pairs`` gives the metric
    of each example for a record and its fp32, where predictions are stored."""

    records: Sequence[Record]
    info: RunInfo
    policy: GateSpec
    place: Callable[[str], str]
    baseline: Baseline | None
    deltas: dict[str, compare.Delta]
    pairs: compare.Pairs


def needs_baseline(policy: GateSpec) -> bool:
    """Whether the latency rule is asked for without a baseline at hand: the suite writes ``latency.max_regression``,
    or no rule at all, so that it wants the defaults. A suite of absolute rules alone needs no baseline."""
    written = [name for name in policy.model_fields_set if getattr(policy, name).model_fields_set]
    return not written or "max_regression" in policy.latency.model_fields_set


def latency(evidence: Evidence, record: Record) -> Verdict | None:
    """Is the case slower than in the baseline by more than the tolerance, each in units of its own run's fp32?"""
    if evidence.baseline is None and not needs_baseline(evidence.policy):
        return None
    tolerance = evidence.policy.latency.max_regression
    delta = evidence.deltas.get(record.case.id)
    blank = Verdict(
        outcome="MISSING",
        case=record.case.id,
        rule="latency",
        place=evidence.place("gate.latency.max_regression"),
        text="no baseline",
        reason="write one with `qbench baseline RUN` and commit it",
        threshold=1 + tolerance,
    )
    if evidence.baseline is None:
        return blank
    if delta is None or delta.base is None or delta.base.status != "ok":
        reason = "a new case is not judged; add it with `qbench baseline RUN`"
        return replace(blank, text="not in the baseline", reason=reason)
    if record.speedup is None or delta.base.speedup is None:
        where = "this run" if record.speedup is None else "the baseline"
        return replace(blank, text="no speed-up", reason=f"latency was not measured in {where}")
    if delta.slowdown is None:
        reason = f"{delta.invalid} differs between the baseline and this run"
        return replace(blank, outcome="INVALID", text="not comparable", reason=reason)
    text = _latency_text(delta.base.speedup, record.speedup, delta.slowdown, tolerance)
    judged = _judged(
        replace(blank, text=text), delta.slowdown, level=delta.level, wanted="below", freedom=delta.freedom
    )
    return _trusted(judged, record.speedup, room=tolerance / 2, meaning="half the tolerance")


def _latency_text(old: Speedup, new: Speedup, slowdown: Interval, tolerance: float) -> str:
    low, high = (None if limit is None else limit - 1 for limit in (slowdown.low, slowdown.high))
    change = Interval(value=slowdown.value - 1, low=low, high=high)
    places = wording.decimals(Interval(value=new.value, low=new.low, high=new.high))
    before, after = wording.fixed(old.value, places), wording.fixed(new.value, places)
    percent = wording.number(change, scale=100, signed=True)
    limits = wording.limits(change, scale=100, signed=True)
    return f"speed-up {before} -> {after}  time {percent} % {limits}".rstrip() + f"  tolerance {tolerance * 100:g} %"


def speedup(evidence: Evidence, record: Record) -> Verdict | None:
    """Does the case hold the promised speed-up over its like-for-like fp32?"""
    promise = evidence.policy.latency.min_speedup
    if promise is None:
        return None
    blank = Verdict(
        outcome="MISSING",
        case=record.case.id,
        rule="speed-up",
        place=evidence.place("gate.latency.min_speedup"),
        text="no speed-up",
        reason="latency was not measured",
        threshold=promise,
    )
    found = record.speedup
    if found is None:
        return blank
    interval = Interval(value=found.value, low=found.low, high=found.high)
    freedom = found.processes - 1 if found.processes > 1 else None
    text = f"{wording.with_limits(interval)}  promised {promise:g}"
    judged = _judged(replace(blank, text=text), interval, level=found.level, wanted="above", freedom=freedom)
    if judged.outcome == "INCONCLUSIVE":
        return judged
    # A bias that could not carry the estimate half the way to the promise cannot have decided it.
    room = abs(math.log(found.value / promise)) / 2
    return _trusted(judged, found, room=room, meaning="half the distance to the promise")


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
        rule=spec.metric,
        place=evidence.place("gate.accuracy.margin"),
        text="no accuracy",
        reason="neither labels nor predictions of its fp32 to compare with",
    )
    fp32 = compare.like_for_like(record, evidence.records)
    scores = record.accuracy
    if metric is None or scores is None or scores.delta is None:
        return blank if spec.model_fields_set else None
    if scores.metric != spec.metric:
        reason = f"the run measured {scores.metric}, the suite gates {spec.metric}"
        return replace(blank, outcome="INVALID", text="not comparable", reason=reason)
    pair = evidence.pairs(record, fp32) if fp32 else None
    test = compare.accuracy_test(record, metric, spec.margin, pair)
    assert test is not None
    worse = {"PASS": None, "FAIL": "worse by more than the margin", "INCONCLUSIVE": _undecided(test, scores.n)}
    return replace(
        blank,
        outcome=test.outcome,
        text=_accuracy_text(scores, test, metric, spec.margin),
        reason=worse[test.outcome],
        value=test.delta.value,
        low=test.delta.low,
        high=test.delta.high,
        level=test.level,
        threshold=-spec.margin / metric.scale,
        p_value=None if test.p_worse is None else _scaled(test.p_worse, test.level),
    )


def _accuracy_text(scores: Accuracy, test: decide.NonInferiority, metric: MetricInfo, margin: float) -> str:
    change = compare.oriented(test.delta, metric.sign)
    places = max(metric.least, wording.decimals(change, metric.scale))
    old, new = ((scores.value - change.value) * metric.scale, scores.value * metric.scale)
    moved = f"{wording.fixed(old, places)} -> {wording.fixed(new, places)}{' %' if metric.percent else ''}"
    by = wording.number(change, scale=metric.scale, signed=True, least=metric.least)
    limits = wording.limits(change, scale=metric.scale, signed=True, least=metric.least)
    amount = " ".join(part for part in (by, metric.unit, limits) if part)
    return f"{moved}  {amount}  margin {margin:.1f}" if metric.percent else f"{moved}  {amount}  margin {margin:g}"


def _undecided(test: decide.NonInferiority, n: int) -> str:
    if test.delta.low is None:
        return "the examples support no interval"
    if test.examples is None:
        return "the interval spans the margin"
    return f"the interval spans the margin; about {max(test.examples, n + 1):,} examples would decide, there are {n:,}"


# --- what they share ---------------------------------------------------------------------------------------


def _judged(
    verdict: Verdict,
    interval: Interval,
    *,
    level: float,
    wanted: Literal["above", "below"],
    freedom: int | None,
) -> Verdict:
    """The verdict with the interval's numbers, decided by the side of the threshold that it lies on."""
    assert verdict.threshold is not None
    outcome = decide.judge(interval, verdict.threshold, wanted=wanted)
    wrong: Literal["above", "below"] = "below" if wanted == "above" else "above"
    p = decide.p_beyond(interval, verdict.threshold, side=wrong, level=level, freedom=freedom)
    spans = "too few samples for an interval" if interval.low is None else "the interval spans the threshold"
    reasons = {"PASS": None, "FAIL": "the whole interval is beyond the threshold", "INCONCLUSIVE": spans}
    return replace(
        verdict,
        outcome=outcome,
        reason=reasons[outcome],
        value=interval.value,
        low=interval.low,
        high=interval.high,
        level=level,
        p_value=_scaled(p, level),
    )


def _scaled(p_value: float, level: float) -> float:
    """The p-value as that of a 5 % test: 0.05 exactly where the interval of ``level`` touches its threshold."""
    return min(1.0, p_value * FAMILY_ERROR / ((1 - level) / 2))


def _trusted(verdict: Verdict, speedup: Speedup, *, room: float, meaning: str) -> Verdict:
    """The verdict, or INCONCLUSIVE where the measurement does not vouch for itself."""
    doubt = _doubt(speedup, room, meaning)
    return verdict if doubt is None else replace(verdict, outcome="INCONCLUSIVE", reason=doubt)


def _doubt(speedup: Speedup, room: float, meaning: str) -> str | None:
    control = speedup.control
    if speedup.protocol != "paired":
        return f"protocol {speedup.protocol} has no control to tell noise from change; gate with protocol paired"
    if control is None or control.low is None or control.high is None:
        return "the control (A/A) was not measured, so noise cannot be told from change"
    worst = max(abs(math.log(control.low)), abs(math.log(control.high)))
    if worst > math.log1p(room):
        return (
            f"the machine is too noisy: the control (A/A), whose true value is 1, is "
            f"{wording.with_limits(control)} and must lie within {meaning}, {math.log1p(room) * 100:.1f} %"
        )
    if speedup.steady is not True:
        return "the series was not steady: latency moved between its first and last third"
    return None


def _exact(verdict: Verdict, value: float, budget: float, text: str, reason: str) -> Verdict:
    """The verdict on a number without an interval: PASS up to the budget."""
    passed = value <= budget
    return replace(
        verdict, outcome="PASS" if passed else "FAIL", text=text, reason=None if passed else reason, value=value
    )
