"""The gate's rule on the metric against the like-for-like fp32 of the same run, by the paired non-inferiority test."""

from __future__ import annotations

from dataclasses import replace

from qbench import formatting
from qbench.compare import calibration_seeds, compare
from qbench.compare import text as compare_text
from qbench.gate.verdict import Evidence, Verdict, format_level
from qbench.record.schema import Flips, Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import noninferiority
from qbench.stats.noninferiority import NonInferiority
from qbench.suite.accuracy import DEFAULTS


def check_accuracy(evidence: Evidence, record: Record) -> Verdict | None:
    """Is the metric within the margin of the like-for-like fp32's?

    Without a recorded change it is MISSING where the suite writes ``gate.accuracy``; a data set without labels
    under a suite that does not is not judged.
    """
    spec, metric, scores = evidence.policy.accuracy, evidence.info.metric, record.accuracy
    name = _name_metric(evidence)
    rule = evidence.rule("gate.accuracy.margin", name=name, kind="metric", case=record.case.id)
    if metric is None or scores is None or scores.delta is None:
        reason = "neither labels nor predictions of its fp32 to compare with"
        return rule.verdict("MISSING", "no accuracy", reason) if spec.model_fields_set else None
    if scores.metric != name:
        reason = f"the run measured {scores.metric}, the suite gates {name}"
        return rule.verdict("INVALID", "not comparable", reason)
    fp32 = compare.like_for_like(record, evidence.records)
    test = compare.accuracy_test(record, metric, spec.margin, lambda: evidence.pairs(record, fp32) if fp32 else None)
    assert test is not None
    old = scores.value - compare.oriented(test.delta, metric.sign).value
    text = describe_change(old, scores.value, test, metric, spec.margin, scores.flips)
    seeds = calibration_seeds.measure_spread(record, fp32, metric, spec.margin, evidence.pairs)
    return replace(rule, threshold=-spec.margin / metric.scale).take_test(
        test,
        text + _describe_seeds(seeds, metric),
        failed="worse by more than the margin",
        n=scores.n,
        flips=scores.flips,
    )


def _name_metric(evidence: Evidence) -> str:
    """What the suite gates: the metric that it names, else what the run's data decided on."""
    spec, metric = evidence.policy.accuracy, evidence.info.metric
    return metric.name if metric is not None and not spec.is_named and metric.name in DEFAULTS else spec.metric


def describe_change(
    before: float, now: float, test: NonInferiority, metric: MetricInfo, margin: float, flips: Flips | None
) -> str:
    """``91.2 -> 90.8 %  -0.4 points [-0.9, +0.1]  margin 1.0  flips 6 / 2, …``."""
    change = compare.oriented(test.delta, metric.sign)
    places = max(metric.least, formatting.decimals(change, metric.scale))
    old, new = (formatting.fixed(value * metric.scale, places) for value in (before, now))
    by = formatting.number(change, scale=metric.scale, signed=True, least=metric.least)
    limits = formatting.limits(change, scale=metric.scale, signed=True, least=metric.least)
    why = "a test at 5 % on one side" if test.level == noninferiority.LEVEL else ""
    level = format_level(test.level, why) if limits else ""
    parts = [
        f"{old} -> {new}{' %' if metric.percent else ''}",
        " ".join(filter(None, (by, metric.unit, limits, level))),
        f"margin {format_margin(margin, metric)}",
        "" if flips is None else f"flips {compare_text.flips(flips)}",
    ]
    return "  ".join(filter(None, parts))


def format_margin(margin: float, metric: MetricInfo) -> str:
    """The margin as the suite writes it, with one decimal for a metric in percent."""
    return f"{margin:.1f}" if metric.percent else f"{margin:g}"


def _describe_seeds(seeds: calibration_seeds.SeedSpread | None, metric: MetricInfo) -> str:
    """What the worst of several calibration seeds would be; empty where there is one."""
    if seeds is None or seeds.test is None:
        return ""
    change = calibration_seeds.describe_change(seeds, metric)
    return f"  worst of {len(seeds.values)} calibration seeds {change}, {seeds.test.outcome}"
