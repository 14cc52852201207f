"""The gate's rule on the metric against the baseline's int8: a change that costs fp32 and int8 alike shows nowhere
else, since the other rule holds int8 against the fp32 of its own run.

The examples that the baseline keeps are paired with the run's, and the loss is tested as against fp32: non-inferiority
at 5 %, with a margin of its own. None means that the rule does not concern the case or was not asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from qbench import formatting
from qbench.compare import compare
from qbench.gate.accuracy import describe_change, format_margin
from qbench.gate.verdict import Evidence, Rule, Verdict
from qbench.record.example_scores import Paired, pair_scores
from qbench.record.schema import Flips, Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import intervals, jackknife, noninferiority
from qbench.stats.interval_type import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

SUFFIX = " regression"
# Fewer changed examples than this are few (score.FEW).
FEW = 30
LEVEL = noninferiority.LEVEL


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """What comparing two scores gave: the score ``before`` and ``now``, on ``n`` examples, and a ``note``."""

    test: noninferiority.NonInferiority
    before: float
    now: float
    n: int
    flips: Flips | None = None
    note: str = ""


def check_regression(evidence: Evidence, record: Record) -> Verdict | None:
    """Is the metric within ``accuracy.max_regression`` of the baseline's int8?"""
    spec, metric = evidence.policy.accuracy, evidence.info.metric
    allowed = spec.allowed_regression
    if allowed is None or metric is None:
        return None
    name, threshold = f"{metric.name}{SUFFIX}", -allowed / metric.scale
    key = "gate.accuracy.max_regression"
    rule = evidence.rule(key, name=name, kind="metric", case=record.case.id, threshold=threshold)
    if evidence.baseline is None:
        missing = rule.verdict("MISSING", "no baseline", "write one with `qbench baseline RUN` and commit it")
        return missing if "max_regression" in spec.model_fields_set else None
    delta = evidence.deltas.get(record.case.id)
    if delta is None or delta.base is None or delta.base.accuracy is None:
        return None  # a case that the baseline lacks is MISSING as a case
    if record.accuracy is None:
        return rule.verdict("MISSING", "no accuracy", "the baseline has a score, this run has none")
    was, name = delta.base.accuracy.metric, record.accuracy.metric
    if was != name:
        reason = f"the baseline measured {was}, this run {name}; write a new baseline"
        return rule.verdict("INVALID", "not comparable", reason)
    return _compare_scores(evidence, rule, record, delta, metric, allowed)


def _compare_scores(
    evidence: Evidence, rule: Rule, record: Record, delta: compare.Delta, metric: MetricInfo, allowed: float
) -> Verdict:
    shared = _pair_examples(evidence, record)
    assert record.accuracy is not None
    assert delta.base is not None
    if shared is None:
        why = _explain_unpaired(evidence, record)
        return _take_comparison(rule, _compare_unpaired(delta, metric, allowed, why), metric, allowed)
    if shared.n == 0:
        reason = "none of the examples that the baseline keeps is in this run; write a baseline on today's examples"
        return rule.verdict("INVALID", "other examples", reason)
    if _is_identical(shared, record, delta.base):
        text = _describe_identical(metric, record.accuracy.value, shared.n, allowed)
        return replace(rule.verdict("PASS", text), value=0.0, identical=True)
    return _take_comparison(rule, _compare_paired(evidence, shared, metric, allowed), metric, allowed)


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
    same_file = record.artifact is not None and base.artifact is not None
    same_file = same_file and record.artifact.sha256 == base.artifact.sha256  # type: ignore[union-attr]
    return same_file and shared.whole and bool((shared.new == shared.old).all())


def _describe_identical(metric: MetricInfo, value: float, n: int, allowed: float) -> str:
    places = max(metric.least, formatting.decimals(Interval(value=value), metric.scale))
    shown = f"{formatting.fixed(value * metric.scale, places)}{' %' if metric.percent else ''}"
    identical = f"identical: the baseline's artifact, the same on all {n:,} examples"
    return f"{shown}, {identical}  margin {format_margin(allowed, metric)}"


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
        test = noninferiority.assess_interval(_widen_for_unseen(test.delta, shared.n, size), margin, LEVEL, shared.n)
    return _Comparison(test=test, before=float(old.mean()), now=float(new.mean()), n=shared.n, flips=flips)


def _compare_facts(shared: Paired, score: Callable[[Array], float], sign: float, margin: float) -> _Comparison:
    """A metric that no example has alone: both runs scored without each of the same examples."""
    before, now = score(shared.old), score(shared.new)
    delta = jackknife.limit_change(lambda facts: sign * score(facts), shared.new, shared.old, LEVEL)
    changed = int((shared.new != shared.old).reshape(shared.n, -1).any(axis=1).sum())
    if changed < min(FEW, shared.n) or delta.low is None:
        delta = _widen_for_unseen(delta, shared.n, abs(before))
    test = noninferiority.assess_interval(delta, margin, LEVEL, shared.n)
    return _Comparison(test=test, before=before, now=now, n=shared.n)


def _widen_for_unseen(delta: Interval, n: int, size: float) -> Interval:
    """Limits wide enough for changes that so few examples need not show: of none among n, up to z^2 / (n + z^2) may
    change, and each then loses its share of the score, ``size`` (as ``score`` has it against fp32)."""
    z2 = intervals.normal_quantile(LEVEL) ** 2
    reach = z2 / (n + z2) * size
    low, high = (delta.value if limit is None else limit for limit in (delta.low, delta.high))
    return Interval(value=delta.value, low=min(low, delta.value - reach), high=max(high, delta.value + reach))


def _compare_unpaired(delta: compare.Delta, metric: MetricInfo, allowed: float, why: str) -> _Comparison:
    """The two stored scores, as of different examples: wider, and never too narrow."""
    base, new = delta.base, delta.contender
    assert base is not None
    assert base.accuracy is not None
    assert new is not None
    assert new.accuracy is not None
    change = Interval(value=new.accuracy.value - base.accuracy.value) if delta.accuracy is None else delta.accuracy
    n = min(new.accuracy.n, base.accuracy.n)
    return _Comparison(
        test=noninferiority.assess_interval(compare.oriented(change, metric.sign), allowed / metric.scale, n=n),
        before=base.accuracy.value,
        now=new.accuracy.value,
        n=n,
        note=f"stored scores, not paired, so the interval is wide: {why}",
    )


def _take_comparison(rule: Rule, compared: _Comparison, metric: MetricInfo, allowed: float) -> Verdict:
    change = describe_change(compared.before, compared.now, compared.test, metric, allowed, compared.flips)
    return rule.take_test(
        compared.test,
        "  ".join(filter(None, (change, compared.note))),
        failed="worse than the baseline's int8 by more than the margin",
        n=compared.n,
        flips=compared.flips,
        improves=True,
    )
