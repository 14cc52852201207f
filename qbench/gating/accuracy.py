"""The gate's rules on the metric: against the like-for-like fp32 of the same run, by the paired non-inferiority test,
and against the baseline's int8, since a change that costs fp32 and int8 alike shows nowhere else.

The examples that the baseline keeps are paired with the run's, and the loss is tested as against fp32: non-inferiority
at 5 %, with a margin of its own. None means that a rule does not concern the case or was not asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from qbench import formatting
from qbench.compare import calibration_seeds, compare
from qbench.compare import text as compare_text
from qbench.decide import limits
from qbench.decide.limit_text import name_bound, score_unit
from qbench.decide.limits import AccuracyFloor, LimitCheck
from qbench.gating.evidence import Evidence, is_same_file
from qbench.gating.verdict import GateRule, Verdict, format_level
from qbench.record.example_scores import Paired, pair_scores
from qbench.record.schema import Flips, Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import intervals, jackknife, noninferiority
from qbench.stats.interval_type import Interval
from qbench.stats.jackknife import FactScore
from qbench.stats.noninferiority import NonInferiority
from qbench.suite.accuracy import DEFAULTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SUFFIX = " regression"
LEVEL = noninferiority.LEVEL


def check_accuracy(evidence: Evidence, record: Record) -> Verdict | None:
    """Is the metric within the margin of the like-for-like fp32's, or its score as high as the suite demands?

    Without a recorded change it is MISSING where the suite writes ``gate.accuracy``; a data set without labels
    under a suite that does not is not judged.
    """
    spec, metric, scores = evidence.policy.accuracy, evidence.info.metric, record.accuracy
    name, fp32 = _name_metric(evidence), compare.like_for_like(record, evidence.records)
    bound = limits.find_accuracy_limit(spec)
    rule = evidence.rule(evidence.limit(record, name, bound.key), "metric")
    if metric is None or scores is None or scores.delta is None:
        reason = "neither labels nor predictions of its fp32 to compare with"
        return rule.verdict("MISSING", "no accuracy", reason) if spec.model_fields_set else None
    if scores.metric != name:
        reason = f"the run measured {scores.metric}, the suite gates {name}"
        return rule.verdict("INVALID", "not comparable", reason)
    check = limits.check_accuracy(record, fp32, evidence.limits, metric, evidence.pairs)
    assert check.test is not None
    seeds = calibration_seeds.measure_spread(record, fp32, metric, bound.loss, evidence.pairs)
    rule = replace(rule, threshold=check.threshold)
    if isinstance(bound, AccuracyFloor):
        text = _describe_score(check.test, metric, bound) + _describe_seeds(seeds, metric)
        verdict = rule.say_test(check, text, failed="below the least score", n=scores.n, flips=scores.flips)
        return _show_as_score(verdict, bound, metric)
    old = scores.value - compare.oriented(check.test.delta, metric.sign).value
    text = describe_change(old, scores.value, check.test, metric, bound.loss, scores.flips)
    text += _describe_seeds(seeds, metric)
    return rule.say_test(check, text, failed="worse by more than the margin", n=scores.n, flips=scores.flips)


def _show_as_score(verdict: Verdict, bound: AccuracyFloor, metric: MetricInfo) -> Verdict:
    """The verdict of the same test with the score and its limits in place of the loss against fp32."""
    assert verdict.value is not None
    score = bound.find_score(Interval(value=verdict.value, low=verdict.low, high=verdict.high), metric)
    least = bound.value / metric.scale
    return replace(verdict, value=score.value, low=score.low, high=score.high, threshold=least)


def _describe_score(test: NonInferiority, metric: MetricInfo, bound: AccuracyFloor) -> str:
    """``38.2 dB [37.9, 38.6] (90 %: a test at 5 % on one side)  at least 10 dB``."""
    score = bound.find_score(test.delta, metric)
    value = formatting.number(score, scale=metric.scale, least=metric.least) + score_unit(metric)
    ends = formatting.limits(score, scale=metric.scale, least=metric.least)
    clauses = (value, ends, _name_level(test) if ends else "")
    return f"{' '.join(filter(None, clauses))}  {name_bound(bound, metric)}"


def _name_metric(evidence: Evidence) -> str:
    """What the suite gates: the metric that it names, else what the run's data decided on."""
    spec, metric = evidence.policy.accuracy, evidence.info.metric
    return metric.name if metric is not None and not spec.is_named and metric.name in DEFAULTS else spec.metric


def describe_change(
    before: float, now: float, test: NonInferiority, metric: MetricInfo, margin: float, flips: Flips | None
) -> str:
    """``91.2 -> 90.8 %  -0.4 points [-0.9, +0.1]  margin 1.0  flips 6 / 2, …``."""
    change = compare.oriented(test.delta, metric.sign)
    decimals = max(metric.least, formatting.decimals(change, metric.scale))
    old, new = (formatting.fixed(value * metric.scale, decimals) for value in (before, now))
    by = formatting.number(change, scale=metric.scale, signed=True, least=metric.least)
    ends = formatting.limits(change, scale=metric.scale, signed=True, least=metric.least)
    level = _name_level(test) if ends else ""
    clauses = [
        f"{old} -> {new}{' %' if metric.percent else ''}",
        " ".join(filter(None, (by, metric.unit, ends, level))),
        f"margin {format_margin(margin, metric)}",
        "" if flips is None else f"flips {compare_text.flips(flips)}",
    ]
    return "  ".join(filter(None, clauses))


def _name_level(test: NonInferiority) -> str:
    return format_level(test.level, "a test at 5 % on one side" if test.level == noninferiority.LEVEL else "")


def format_margin(margin: float, metric: MetricInfo) -> str:
    """The margin as the suite writes it, with one decimal for a metric in percent."""
    return f"{margin:.1f}" if metric.percent else f"{margin:g}"


def _describe_seeds(seeds: calibration_seeds.SeedSpread | None, metric: MetricInfo) -> str:
    """What the worst of several calibration seeds would be; empty where there is one."""
    if seeds is None or seeds.test is None:
        return ""
    change = calibration_seeds.describe_change(seeds, metric)
    return f"  worst of {len(seeds.values)} calibration seeds {change}, {seeds.test.outcome}"


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """What comparing two scores gave: the score ``before`` and ``now``, on ``n`` examples, and a ``note``."""

    test: noninferiority.NonInferiority
    before: float
    now: float
    n: int
    flips: Flips | None = None
    note: str = ""


# --- against the baseline's int8 -----------------------------------------------------------------------------------


def check_regression(evidence: Evidence, record: Record) -> Verdict | None:
    """Is the metric within ``accuracy.max_regression`` of the baseline's int8?"""
    spec, metric = evidence.policy.accuracy, evidence.info.metric
    allowed = spec.allowed_regression
    if allowed is None or metric is None:
        return None
    key, threshold = "gate.accuracy.max_regression", -allowed / metric.scale
    check = evidence.limit(record, f"{metric.name}{SUFFIX}", key, threshold)
    rule = evidence.rule(check, "metric")
    if evidence.baseline is None:
        missing = rule.verdict("MISSING", "no baseline", "write one with `qbench baseline RUN` and commit it")
        return missing if "max_regression" in spec.model_fields_set else None
    base = evidence.base_of(record.case.id)
    if base is None or base.accuracy is None:
        return None  # a case that the baseline lacks is MISSING as a case
    if record.accuracy is None:
        return rule.verdict("MISSING", "no accuracy", "the baseline has a score, this run has none")
    was, name = base.accuracy.metric, record.accuracy.metric
    if was != name:
        reason = f"the baseline measured {was}, this run {name}; write a new baseline"
        return rule.verdict("INVALID", "not comparable", reason)
    return _compare_scores(evidence, rule, check, evidence.deltas[record.case.id], metric, allowed)


def _compare_scores(
    evidence: Evidence,
    rule: GateRule,
    check: LimitCheck,
    delta: compare.Delta,
    metric: MetricInfo,
    allowed: float,
) -> Verdict:
    record = check.record
    shared = _pair_examples(evidence, record)
    assert record.accuracy is not None
    assert delta.base is not None
    if shared is None:
        why = _explain_unpaired(evidence, record)
        return _say_comparison(rule, check, _compare_unpaired(delta, metric, allowed, why), metric, allowed)
    if shared.n == 0:
        reason = "none of the examples that the baseline keeps is in this run; write a baseline on today's examples"
        return rule.verdict("INVALID", "other examples", reason)
    if _is_identical(shared, record, delta.base):
        text = _describe_identical(metric, record.accuracy.value, shared.n, allowed)
        return replace(rule.verdict("PASS", text), value=0.0, identical=True)
    return _say_comparison(rule, check, _compare_paired(evidence, shared, metric, allowed), metric, allowed)


def _pair_examples(evidence: Evidence, record: Record) -> Paired | None:
    """The examples of this run beside the baseline's; None where either keeps none."""
    assert evidence.baseline is not None
    scores = evidence.baseline.examples.get(record.case.id)
    mine = None if scores is None else evidence.examples(record)
    return pair_scores(mine, scores, has_score=evidence.score_of_facts is not None)


def _explain_unpaired(evidence: Evidence, record: Record) -> str:
    """Which side keeps no examples, and what to do about that."""
    assert evidence.baseline is not None
    in_baseline, mine = record.case.id in evidence.baseline.examples, evidence.examples(record) is not None
    if in_baseline:
        return "no predictions of this run can be paired with the baseline's examples; run the suite again"
    if mine:
        return "the baseline keeps no examples of it; `qbench baseline` of a new run keeps them"
    return "neither the baseline nor this run keeps examples of it; `qbench baseline` of a run with predictions does"


def _is_identical(shared: Paired, record: Record, base: Record) -> bool:
    """Whether the baseline's very artifact gave the same on all of the same examples: then nothing is estimated."""
    return is_same_file(base, record) and shared.whole and bool((shared.new == shared.old).all())


def _describe_identical(metric: MetricInfo, value: float, n: int, allowed: float) -> str:
    decimals = max(metric.least, formatting.decimals(Interval(value=value), metric.scale))
    score = f"{formatting.fixed(value * metric.scale, decimals)}{' %' if metric.percent else ''}"
    identical = f"identical: the baseline's artifact, the same on all {n:,} examples"
    return f"{score}, {identical}  margin {format_margin(allowed, metric)}"


def _compare_paired(evidence: Evidence, shared: Paired, metric: MetricInfo, allowed: float) -> _Comparison:
    margin, sign = allowed / metric.scale, metric.sign
    if shared.facts:
        assert evidence.score_of_facts is not None
        compared = _compare_facts(shared, evidence.score_of_facts, sign, margin)
    else:
        compared = _compare_values(shared, metric, margin)
    notes = []
    if not shared.whole:
        notes.append(f"on {shared.n:,} shared examples (baseline {shared.of_old:,}, run {shared.of_new:,})")
    if shared.by_id:
        notes.append(f"{shared.by_id:,} of them the same by id alone")
    return replace(compared, note="  ".join(notes))


def _compare_values(shared: Paired, metric: MetricInfo, margin: float) -> _Comparison:
    """Right or wrong, or a number, of each example."""
    new, old, sign = shared.new.astype(float), shared.old.astype(float), metric.sign
    test = noninferiority.assess_examples(sign * new, sign * old, margin, bounds=metric.bounds)
    flips = None
    if intervals.is_binary(new) and intervals.is_binary(old):
        flips = Flips(harmful=int((sign * new < sign * old).sum()), beneficial=int((sign * new > sign * old).sum()))
    elif test.delta.low is None:
        size = math.sqrt(float((old**2).mean()))
        widened = intervals.widen_for_unseen(test.delta, shared.n, size, LEVEL)
        test = noninferiority.assess_interval(widened, margin, LEVEL, shared.n)
    return _Comparison(test=test, before=float(old.mean()), now=float(new.mean()), n=shared.n, flips=flips)


def _compare_facts(shared: Paired, score: FactScore, sign: float, margin: float) -> _Comparison:
    """A metric that no example has alone: both runs scored without each of the same examples."""
    before, now = score(shared.old), score(shared.new)
    delta = jackknife.limit_change(score.turn(sign), shared.new, shared.old, LEVEL)
    changed = int((shared.new != shared.old).reshape(shared.n, -1).any(axis=1).sum())
    if changed < min(intervals.FEW_CHANGED, shared.n) or delta.low is None:
        delta = intervals.widen_for_unseen(delta, shared.n, abs(before), LEVEL)
    test = noninferiority.assess_interval(delta, margin, LEVEL, shared.n)
    return _Comparison(test=test, before=before, now=now, n=shared.n)


def _compare_unpaired(delta: compare.Delta, metric: MetricInfo, allowed: float, why: str) -> _Comparison:
    """The two stored scores, as of different examples: wider, and never too narrow."""
    base, new = delta.base, delta.contender
    assert base is not None
    assert base.accuracy is not None
    assert new is not None
    assert new.accuracy is not None
    assert delta.accuracy is not None
    n = min(new.accuracy.n, base.accuracy.n)
    return _Comparison(
        test=noninferiority.assess_interval(compare.oriented(delta.accuracy, metric.sign), allowed / metric.scale, n=n),
        before=base.accuracy.value,
        now=new.accuracy.value,
        n=n,
        note=f"stored scores, not paired, so the interval is wide: {why}",
    )


def _say_comparison(
    rule: GateRule, check: LimitCheck, compared: _Comparison, metric: MetricInfo, allowed: float
) -> Verdict:
    change = describe_change(compared.before, compared.now, compared.test, metric, allowed, compared.flips)
    return rule.say_test(
        check.hold_test(compared.test),
        "  ".join(filter(None, (change, compared.note))),
        failed="worse than the baseline's int8 by more than the margin",
        n=compared.n,
        flips=compared.flips,
        improves=True,
    )
