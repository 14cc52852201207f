"""Which int8 cases may be shipped: every limit of the suite held against a case, by the gate's own tests; pure.

    limit      held against                                             from
    int8       some of its work runs in int8, of dynamic 1 % and more   the artifact, quantize.dynamic.min_coverage
    accuracy   not worse than its fp32 by more than the margin          gate.accuracy
    size       bytes over those of its fp32                             gate.size.max_ratio
    speed-up   over its fp32, by the interval                           gate.latency.min_speedup
    latency    the typical call, by its interval                        decide.max_latency
    memory     the largest resident set                                 decide.max_memory
    peak       no faster than this core's measured peak allows          the roofline

Each case is tested alone. What is not measured yet has no outcome: before anything is measured this tells which cases
are worth measuring, afterwards which may be shipped.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qbench import formatting
from qbench.compare import above_peak, compare, int8_share, text
from qbench.compare.speedup_doubt import find_doubt, room_to_promise
from qbench.decide import cases
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import thresholds
from qbench.stats.interval_type import Interval
from qbench.stats.noninferiority import NonInferiority
from qbench.stats.thresholds import Outcome

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from qbench.suite.gate import GateSpec
    from qbench.suite.settings import DecideSpec


@dataclass(frozen=True, kw_only=True)
class LimitCheck:
    """One limit held against one case; ``outcome`` None: not measured (yet). ``text`` says it with its numbers."""

    limit: str
    outcome: Outcome | None
    text: str


Checks = Mapping[str, tuple[LimitCheck, ...]]


def qualify(
    records: Sequence[Record],
    *,
    metric: MetricInfo | None,
    gate: GateSpec | None,
    decide: DecideSpec,
    pairs: compare.Pairs = lambda record, fp32: None,
) -> Checks:
    """The limits held against each int8 case that is not failed or skipped, by case id.

    ``gate`` None: the suite, which holds the margin, cannot be read. ``pairs`` gives the metric of each example for a
    case and its fp32. Records of cases that are built and evaluated, but not measured, will do.
    """
    tests = run_accuracy_tests(records, metric, None if gate is None else gate.accuracy.margin, pairs)
    return check_limits(records, tests, metric=metric, gate=gate, decide=decide)


def may_be_shipped(checks: Sequence[LimitCheck]) -> bool:
    """Whether nothing is known that rules the case out: no limit that it is held against FAILs."""
    return all(check.outcome != "FAIL" for check in checks)


def holds_all(checks: Sequence[LimitCheck]) -> bool:
    """Whether the case is shown to hold every limit."""
    return all(check.outcome == "PASS" for check in checks)


def run_accuracy_tests(
    records: Sequence[Record],
    metric: MetricInfo | None,
    margin: float | None,
    pairs: compare.Pairs = lambda record, fp32: None,
) -> dict[str, NonInferiority]:
    """The gate's accuracy test of each int8 case; absent where there is none to make."""
    tests: dict[str, NonInferiority] = {}
    for record in records:
        if metric is None or margin is None or not cases.is_int8(record):
            continue
        fp32 = compare.like_for_like(record, records)
        read = functools.partial(_pair, pairs, record, fp32)
        test = compare.accuracy_test(record, metric, margin, read)
        tests |= {} if test is None else {record.case.id: test}
    return tests


def _pair(pairs: compare.Pairs, record: Record, fp32: Record | None) -> tuple[ArrayLike, ArrayLike] | None:
    return None if fp32 is None else pairs(record, fp32)


def check_limits(
    records: Sequence[Record],
    tests: Mapping[str, NonInferiority],
    *,
    metric: MetricInfo | None,
    gate: GateSpec | None,
    decide: DecideSpec,
) -> Checks:
    """``qualify`` with the accuracy tests made."""
    return {
        record.case.id: tuple(_check_case(record, records, tests.get(record.case.id), metric, gate, decide))
        for record in records
        if cases.is_int8(record)
    }


def _check_case(
    record: Record,
    records: Sequence[Record],
    test: NonInferiority | None,
    metric: MetricInfo | None,
    gate: GateSpec | None,
    decide: DecideSpec,
) -> Iterator[LimitCheck]:
    yield _check_int8(record)
    yield _check_accuracy(record, test, metric, None if gate is None else gate.accuracy.margin)
    if gate is not None and gate.size.max_ratio is not None:
        yield _check_size(record, compare.like_for_like(record, records), gate.size.max_ratio)
    if gate is not None and gate.latency.min_speedup is not None:
        yield _check_speedup(record, gate.latency.min_speedup)
    if decide.max_latency is not None:
        yield _check_latency(record, decide.max_latency)
    if decide.max_memory is not None:
        yield _check_memory(record, decide.max_memory)
    if above_peak.is_impossible(record) and record.roofline is not None:
        share = formatting.share(record.roofline.peak_fraction, 0)
        yield LimitCheck(limit="peak", outcome="FAIL", text=f"faster than this core can be: {share} of its int8 peak")


def breaks_ceiling(record: Record, decide: DecideSpec) -> bool:
    """Whether a case, fp32 included, is shown to take longer or hold more memory than ``decide`` allows."""
    checks = [
        None if decide.max_latency is None else _check_latency(record, decide.max_latency),
        None if decide.max_memory is None else _check_memory(record, decide.max_memory),
    ]
    return any(check is not None and check.outcome == "FAIL" for check in checks)


def _check_int8(record: Record) -> LimitCheck:
    if (why := int8_share.explain_fp32_in_effect(record)) is not None:
        return LimitCheck(limit="int8", outcome="FAIL", text=f"{int8_share.FP32_IN_EFFECT}: {why}")
    if cases.runs_in_int8(record):
        return LimitCheck(limit="int8", outcome="PASS", text="runs in int8")
    return LimitCheck(limit="int8", outcome="FAIL", text="no multiply-accumulate is seen to run in int8")


def _check_accuracy(
    record: Record, test: NonInferiority | None, metric: MetricInfo | None, margin: float | None
) -> LimitCheck:
    make = functools.partial(LimitCheck, limit="accuracy")
    if margin is None:
        return make(
            outcome=None, text="cannot be judged, since the run's suite, which holds the margin, cannot be read"
        )
    if test is None or metric is None or record.accuracy is None:
        return make(outcome=None, text="has no accuracy to compare with its fp32's")
    change = compare.oriented(test.delta, metric.sign)
    amount = _with_limits_beside(change, -metric.sign * margin, metric.scale, signed=True, least=metric.least)
    shown = f"{metric.name} {amount} {metric.unit}".rstrip() + f", margin {margin:g}"
    if test.outcome == "INCONCLUSIVE" and (needed := text.would_decide(test, record.accuracy.n)) is not None:
        shown += f": {needed} would decide, there are {record.accuracy.n:,}"
    return make(outcome=test.outcome, text=shown)


def _check_size(record: Record, fp32: Record | None, budget: float) -> LimitCheck:
    make = functools.partial(LimitCheck, limit="size")
    if record.artifact is None or fp32 is None or fp32.artifact is None or not fp32.artifact.size_bytes:
        return make(outcome=None, text="has no size to compare with its fp32's")
    ratio = record.artifact.size_bytes / fp32.artifact.size_bytes
    places = formatting.places_beside([ratio * 100], budget * 100, 1)
    shown = f"{formatting.share(ratio, places)} of fp32's bytes, at most {formatting.share(budget, places)}"
    return make(outcome="PASS" if ratio <= budget else "FAIL", text=shown)


def _check_speedup(record: Record, promise: float) -> LimitCheck:
    make = functools.partial(LimitCheck, limit="speed-up")
    speedup = record.speedup
    if speedup is None:
        return make(outcome=None, text="has no speed-up")
    interval = Interval(value=speedup.value, low=speedup.low, high=speedup.high)
    outcome = thresholds.decide(interval, promise, wanted="above")
    shown = f"{_with_limits_beside(interval, promise)} times as fast as its fp32, promised {promise:g}"
    if outcome == "INCONCLUSIVE":
        return make(outcome=outcome, text=shown)
    doubt = find_doubt(speedup, room_to_promise(speedup.value, promise), "half the distance to the promise")
    return (
        make(outcome=outcome, text=shown) if doubt is None else make(outcome="INCONCLUSIVE", text=f"{shown}; {doubt}")
    )


def _check_latency(record: Record, most: float) -> LimitCheck:
    make = functools.partial(LimitCheck, limit="latency")
    latency, typical = record.latency, cases.p50(record)
    if latency is None or typical is None:
        return make(outcome=None, text="has no latency")
    interval = Interval(value=typical, low=latency.p50_low, high=latency.p50_high)
    value, bound = formatting.beside(typical, most, formatting.duration)
    high = "" if interval.high is None else formatting.beside(interval.high, most, formatting.duration)[0]
    shown = f"{value} a call{f', up to {high} by its limits' if high else ''}, at most {bound}"
    return make(outcome=thresholds.decide(interval, most, wanted="below"), text=shown)


def _check_memory(record: Record, most: float) -> LimitCheck:
    make = functools.partial(LimitCheck, limit="memory")
    memory = record.memory
    if memory is None:
        return make(outcome=None, text="has no memory measured")
    resident = memory.loaded_rss_bytes if memory.peak_rss_bytes is None else memory.peak_rss_bytes
    value, bound = formatting.beside(resident, most, formatting.size)
    shown = f"{value} resident, at most {bound}"
    return make(outcome="PASS" if resident <= most else "FAIL", text=shown)


def _with_limits_beside(
    interval: Interval, bound: float, scale: float = 1.0, *, signed: bool = False, least: int = 0
) -> str:
    """``1.496 [1.480, 1.512]`` beside a bound (in shown units) of 1.5: no number reads like a bound that it is not."""
    ends = (interval.value, interval.low, interval.high)
    shown = [None if end is None else end * scale for end in ends]
    least = formatting.places_beside(shown, bound, max(least, formatting.decimals(interval, scale)))
    return formatting.with_limits(interval, scale=scale, signed=signed, least=least)
