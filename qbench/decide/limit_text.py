"""What a decision says of a limit that was held against a case: a sentence, and data for a program; pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from qbench import formatting
from qbench.compare import compare, int8_share
from qbench.compare import text as compare_text
from qbench.decide.limits import AccuracyFloor, AccuracyLimit, LimitCheck
from qbench.modes import WEIGHT_ONLY, precision_of
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval


def describe(check: LimitCheck) -> str:
    """``26.0 % of fp32's bytes, at most 25.0 %``, with the key where an override gives the limit."""
    said = _WORDS[check.limit](check)
    return f"{said} ({check.key})" if (check.key or "").startswith("gate.overrides[") else said


def as_data(check: LimitCheck) -> dict[str, Any]:
    """The check as ``decision.json`` holds it: numbers as the suite and the report show them."""
    value, measured = check.threshold, check.measured
    if check.bound is not None:
        value, measured = check.bound.value, _show_accuracy(check)
    return {
        "limit": check.limit,
        "outcome": check.outcome,
        "text": describe(check),
        "key": check.key,
        "value": value,
        "unit": check.unit,
        "place": check.place,
        "measured": None if measured is None else asdict(measured),
        "level": check.level,
    }


def _show_accuracy(check: LimitCheck) -> Interval | None:
    """The change of accuracy in the metric's own direction, or the score where that is held to a least one, as it is
    shown."""
    if check.metric is None or check.measured is None:
        return None
    shown, scale = compare.oriented(check.measured, check.metric.sign), check.metric.scale
    if isinstance(check.bound, AccuracyFloor):
        shown = check.bound.find_score(check.measured, check.metric)
    low, high = (None if end is None else end * scale for end in (shown.low, shown.high))
    return Interval(value=shown.value * scale, low=low, high=high)


def score_unit(metric: MetricInfo) -> str:
    """The unit of a score, where that of a change is points: `` %``, `` dB``; empty where the metric has none."""
    return " %" if metric.percent else f" {metric.unit}".rstrip()


def name_bound(bound: AccuracyLimit, metric: MetricInfo) -> str:
    """``margin 1``, ``at least 10 dB``: what the suite says of accuracy."""
    if isinstance(bound, AccuracyFloor):
        return f"at least {bound.value:g}{score_unit(metric)}"
    return f"margin {bound.loss:g}"


def _describe_int8(check: LimitCheck) -> str:
    if (why := int8_share.explain_fp32_in_effect(check.record)) is not None:
        return f"{int8_share.FP32_IN_EFFECT}: {why}"
    if check.record.case.mode == WEIGHT_ONLY:
        return "has weights of few bits" if check.outcome == "PASS" else "no weight is seen to have few bits"
    precision = precision_of(check.record.case.mode)
    return (
        f"runs in {precision}" if check.outcome == "PASS" else f"no multiply-accumulate is seen to run in {precision}"
    )


def _describe_accuracy(check: LimitCheck) -> str:
    if check.key is None:
        return "cannot be judged, since the run's suite, which holds the margin, cannot be read"
    test, metric, accuracy, bound = check.test, check.metric, check.record.accuracy, check.bound
    if test is None:
        return "has no accuracy to compare with its fp32's"
    assert metric is not None
    assert accuracy is not None
    assert bound is not None
    if isinstance(bound, AccuracyFloor):
        score = bound.find_score(test.delta, metric)
        amount = _with_limits_beside(score, bound.value, metric.scale, least=metric.least) + score_unit(metric)
    else:
        change = compare.oriented(test.delta, metric.sign)
        amount = _with_limits_beside(change, -metric.sign * bound.loss, metric.scale, signed=True, least=metric.least)
        amount = f"{amount} {metric.unit}".rstrip()
    said = f"{metric.name} {amount}, {name_bound(bound, metric)}"
    if test.outcome == "INCONCLUSIVE" and (needed := compare_text.would_decide(test, accuracy.n)) is not None:
        said += f": {needed} would decide, there are {accuracy.n:,}"
    return said if test.reason is None else f"{said}; {test.reason}"


def _describe_size(check: LimitCheck) -> str:
    if check.measured is None:
        return "has no size to compare with its fp32's"
    assert check.threshold is not None
    ratio, most = check.measured.value, check.threshold
    decimals = formatting.places_beside([ratio * 100], most * 100, 1)
    return f"{formatting.share(ratio, decimals)} of fp32's bytes, at most {formatting.share(most, decimals)}"


def _describe_speedup(check: LimitCheck) -> str:
    if check.measured is None:
        return "has no speed-up"
    assert check.threshold is not None
    promise = check.threshold
    said = f"{_with_limits_beside(check.measured, promise)} times as fast as its fp32, promised {promise:g}"
    return said if check.doubt is None else f"{said}; {check.doubt}"


def _describe_latency(check: LimitCheck) -> str:
    if check.measured is None:
        return "has no latency"
    assert check.threshold is not None
    typical, most = check.measured, check.threshold
    value, bound = formatting.beside(typical.value, most, formatting.duration)
    high = "" if typical.high is None else formatting.beside(typical.high, most, formatting.duration)[0]
    return f"{value} a call{f', up to {high} by its limits' if high else ''}, at most {bound}"


def _describe_memory(check: LimitCheck) -> str:
    if check.measured is None:
        return "has no memory measured"
    assert check.threshold is not None
    value, bound = formatting.beside(check.measured.value, check.threshold, formatting.size)
    return f"{value} resident, at most {bound}"


def _describe_peak(check: LimitCheck) -> str:
    roofline = check.record.roofline
    share = formatting.share(None if roofline is None else roofline.peak_fraction, 0)
    return f"faster than this core can be: {share} of its {precision_of(check.record.case.mode)} peak"


def _with_limits_beside(
    interval: Interval, bound: float, scale: float = 1.0, *, signed: bool = False, least: int = 0
) -> str:
    """``1.496 [1.480, 1.512]`` beside a bound (in shown units) of 1.5: no number reads like a bound that it is not."""
    ends = (interval.value, interval.low, interval.high)
    values = [None if end is None else end * scale for end in ends]
    least = formatting.places_beside(values, bound, max(least, formatting.decimals(interval, scale)))
    return formatting.with_limits(interval, scale=scale, signed=signed, least=least)


_WORDS: dict[str, Callable[[LimitCheck], str]] = {
    "int8": _describe_int8,
    "accuracy": _describe_accuracy,
    "size": _describe_size,
    "speed-up": _describe_speedup,
    "latency": _describe_latency,
    "memory": _describe_memory,
    "peak": _describe_peak,
}
