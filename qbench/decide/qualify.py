"""Which int8 cases may be shipped: every limit of the suite held against a case, by the gate's own tests; pure.

    limit      held against                                             from
    int8       some of its work runs in int8, of dynamic 1 % and more   the artifact, quantize.dynamic.min_coverage
    accuracy   not worse than its fp32 by more than the margin          gate.accuracy
    size       bytes over those of its fp32                             gate.size.max_ratio
    speed-up   over its fp32, by the interval                           gate.latency.min_speedup
    latency    the typical call, by its interval                        decide.max_latency
    memory     the largest resident set                                 decide.max_memory
    peak       no faster than this core's measured peak allows          the roofline

What ``gate.overrides`` gives for a case takes the place of the values for all, as in the gate. Each case is tested
alone. What is not measured yet has no outcome: before anything is measured this tells which cases are worth
measuring, afterwards which may be shipped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from qbench import formatting
from qbench.compare import above_peak, compare, int8_share, limits, text
from qbench.decide import cases
from qbench.measure import percentiles
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import thresholds
from qbench.stats.interval_type import Interval
from qbench.stats.noninferiority import NonInferiority
from qbench.stats.thresholds import Outcome
from qbench.suite.gate import GateSpec, resolve_overrides

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from qbench.suite.settings import DecideSpec

Place = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class LimitCheck:
    """One limit held against one case; ``outcome`` None: not measured (yet). ``text`` says it with its numbers.

    The limit as data: its ``value`` in ``unit``, by which ``key`` of the suite, at which ``place`` (file:line, where
    that is known); ``measured`` is what was held against it, in the same unit, with the limits that were tested, at
    ``level``. None: it has no such number.
    """

    limit: str
    outcome: Outcome | None
    text: str
    key: str | None = None
    value: float | None = None
    unit: str | None = None
    place: str | None = None
    measured: Interval | None = None
    level: float | None = None


Checks = Mapping[str, tuple[LimitCheck, ...]]


def qualify(
    records: Sequence[Record],
    *,
    metric: MetricInfo | None,
    gate: GateSpec | None,
    decide: DecideSpec,
    pairs: compare.Pairs = lambda record, fp32: None,
    place: Place | None = None,
) -> Checks:
    """The limits held against each int8 case that is not failed or skipped, by case id.

    ``gate`` None: the suite, which holds the margin, cannot be read. ``pairs`` gives the metric of each example for a
    case and its fp32, ``place`` the file:line of a key of the suite. Records of cases that are built and evaluated, but
    not measured, will do.
    """
    tests = run_accuracy_tests(records, metric, gate, pairs)
    return check_limits(records, tests, metric=metric, gate=gate, decide=decide, place=place)


def may_be_shipped(checks: Sequence[LimitCheck]) -> bool:
    """Whether nothing is known that rules the case out: no limit that it is held against FAILs."""
    return all(check.outcome != "FAIL" for check in checks)


def holds_all(checks: Sequence[LimitCheck]) -> bool:
    """Whether the case is shown to hold every limit."""
    return all(check.outcome == "PASS" for check in checks)


def run_accuracy_tests(
    records: Sequence[Record],
    metric: MetricInfo | None,
    gate: GateSpec | None,
    pairs: compare.Pairs = lambda record, fp32: None,
) -> dict[str, NonInferiority]:
    """The gate's accuracy test of each int8 case, by its own margin; absent where there is none to make."""
    tests: dict[str, NonInferiority] = {}
    for record in records:
        if metric is None or gate is None or not cases.is_int8(record):
            continue
        fp32 = compare.like_for_like(record, records)
        read = functools.partial(_pair, pairs, record, fp32)
        test = compare.accuracy_test(record, metric, resolve_overrides(gate, record.case)[0].accuracy.margin, read)
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
    place: Place | None = None,
) -> Checks:
    """``qualify`` with the accuracy tests made."""
    checks = {}
    for record in records:
        if cases.is_int8(record):
            of_case = _CaseLimits.of(record, gate, decide, place)
            case_checks = _check_case(record, records, tests.get(record.case.id), metric, of_case)
            checks[record.case.id] = tuple(map(of_case.locate, case_checks))
    return checks


@dataclass(frozen=True, kw_only=True)
class _CaseLimits:
    """The limits that hold for one case. ``gate`` None: it cannot be read; ``keys``: where an override gives a key."""

    gate: GateSpec | None
    decide: DecideSpec
    keys: Mapping[str, str] = field(default_factory=dict)
    place: Place | None = None

    @classmethod
    def of(cls, record: Record, gate: GateSpec | None, decide: DecideSpec, place: Place | None) -> _CaseLimits:
        """Those of a case, overrides put in."""
        if gate is None:
            return cls(gate=None, decide=decide)
        resolved, keys = resolve_overrides(gate, record.case)
        return cls(gate=resolved, decide=decide, keys=keys, place=place)

    def locate(self, check: LimitCheck) -> LimitCheck:
        """The check with the key that gives its limit, which the text names where it is an override, and its place."""
        if check.key is None or self.gate is None:
            return check
        key = self.keys.get(check.key, check.key)
        text = check.text if key == check.key else f"{check.text} ({key})"
        return replace(check, key=key, text=text, place=None if self.place is None else self.place(key))


def _check_case(
    record: Record,
    records: Sequence[Record],
    test: NonInferiority | None,
    metric: MetricInfo | None,
    of_case: _CaseLimits,
) -> Iterator[LimitCheck]:
    gate, decide = of_case.gate, of_case.decide
    yield _check_int8(record)
    yield _check_accuracy(record, test, metric, None if gate is None else gate.accuracy.margin)
    if gate is not None and gate.size.max_ratio is not None:
        yield _check_size(limits.read_sizes(record, records), gate.size.max_ratio)
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
    make = functools.partial(LimitCheck, limit="int8")
    coverage = record.artifact.coverage if record.artifact else None
    if record.case.mode == "dynamic" and coverage is not None and coverage.macs_int8 is not None:
        make = functools.partial(
            make,
            key="quantize.dynamic.min_coverage",
            value=int8_share.least_coverage(record),
            unit="of its multiply-accumulates",
            measured=Interval(value=coverage.macs_int8),
        )
    if (why := int8_share.explain_fp32_in_effect(record)) is not None:
        return make(outcome="FAIL", text=f"{int8_share.FP32_IN_EFFECT}: {why}")
    if cases.runs_in_int8(record):
        return make(outcome="PASS", text="runs in int8")
    return make(outcome="FAIL", text="no multiply-accumulate is seen to run in int8")


def _check_accuracy(
    record: Record, test: NonInferiority | None, metric: MetricInfo | None, margin: float | None
) -> LimitCheck:
    if margin is None:
        why = "cannot be judged, since the run's suite, which holds the margin, cannot be read"
        return LimitCheck(limit="accuracy", outcome=None, text=why)
    make = functools.partial(LimitCheck, limit="accuracy", key="gate.accuracy.margin", value=margin)
    if test is None or metric is None or record.accuracy is None:
        return make(outcome=None, text="has no accuracy to compare with its fp32's")
    change = compare.oriented(test.delta, metric.sign)
    amount = _with_limits_beside(change, -metric.sign * margin, metric.scale, signed=True, least=metric.least)
    shown = f"{metric.name} {amount} {metric.unit}".rstrip() + f", margin {margin:g}"
    if test.outcome == "INCONCLUSIVE" and (needed := text.would_decide(test, record.accuracy.n)) is not None:
        shown += f": {needed} would decide, there are {record.accuracy.n:,}"
    shown += "" if test.reason is None else f"; {test.reason}"
    measured = _scale_interval(change, metric.scale)
    return make(outcome=test.outcome, text=shown, unit=metric.unit or None, measured=measured, level=test.level)


def _scale_interval(interval: Interval, scale: float) -> Interval:
    low, high = (None if limit is None else limit * scale for limit in (interval.low, interval.high))
    return Interval(value=interval.value * scale, low=low, high=high)


def _check_size(sizes: limits.Sizes | None, budget: float) -> LimitCheck:
    make = functools.partial(
        LimitCheck, limit="size", key="gate.size.max_ratio", value=budget, unit="bytes over fp32's"
    )
    if sizes is None:
        return make(outcome=None, text="has no size to compare with its fp32's")
    held = limits.hold_size(sizes, budget)
    places = formatting.places_beside([sizes.ratio * 100], budget * 100, 1)
    shown = f"{formatting.share(sizes.ratio, places)} of fp32's bytes, at most {formatting.share(budget, places)}"
    return make(outcome=held.outcome, text=shown, measured=held.measured)


def _check_speedup(record: Record, promise: float) -> LimitCheck:
    make = functools.partial(
        LimitCheck, limit="speed-up", key="gate.latency.min_speedup", value=promise, unit="times as fast as its fp32"
    )
    speedup = record.speedup
    if speedup is None:
        return make(outcome=None, text="has no speed-up")
    held = limits.hold_speedup(speedup, promise)
    shown = f"{_with_limits_beside(held.measured, promise)} times as fast as its fp32, promised {promise:g}"
    said = shown if held.doubt is None else f"{shown}; {held.doubt}"
    return make(outcome=held.outcome, text=said, measured=held.measured, level=speedup.level)


def _check_latency(record: Record, most: float) -> LimitCheck:
    make = functools.partial(LimitCheck, limit="latency", key="decide.max_latency", value=most, unit="s")
    latency, typical = record.latency, cases.p50(record)
    if latency is None or typical is None:
        return make(outcome=None, text="has no latency")
    interval = Interval(value=typical, low=latency.p50_low, high=latency.p50_high)
    value, bound = formatting.beside(typical, most, formatting.duration)
    high = "" if interval.high is None else formatting.beside(interval.high, most, formatting.duration)[0]
    shown = f"{value} a call{f', up to {high} by its limits' if high else ''}, at most {bound}"
    outcome = thresholds.decide(interval, most, wanted="below")
    return make(outcome=outcome, text=shown, measured=interval, level=percentiles.LEVEL)


def _check_memory(record: Record, most: float) -> LimitCheck:
    make = functools.partial(LimitCheck, limit="memory", key="decide.max_memory", value=most, unit="bytes")
    memory = record.memory
    if memory is None:
        return make(outcome=None, text="has no memory measured")
    resident = memory.loaded_rss_bytes if memory.peak_rss_bytes is None else memory.peak_rss_bytes
    value, bound = formatting.beside(resident, most, formatting.size)
    shown = f"{value} resident, at most {bound}"
    outcome = thresholds.decide_number(resident, most)
    return make(outcome=outcome, text=shown, measured=Interval(value=resident))


def _with_limits_beside(
    interval: Interval, bound: float, scale: float = 1.0, *, signed: bool = False, least: int = 0
) -> str:
    """``1.496 [1.480, 1.512]`` beside a bound (in shown units) of 1.5: no number reads like a bound that it is not."""
    ends = (interval.value, interval.low, interval.high)
    shown = [None if end is None else end * scale for end in ends]
    least = formatting.places_beside(shown, bound, max(least, formatting.decimals(interval, scale)))
    return formatting.with_limits(interval, scale=scale, signed=signed, least=least)
