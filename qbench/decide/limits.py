"""Every limit of the suite held against a case, once: the decision, the gate and the report read it from here; pure.

    limit        held against                                             from
    int8         some of its work runs in int8, of dynamic 1 % and more   the artifact, quantize.dynamic.min_coverage
    accuracy     the loss against its fp32, or the least score            gate.accuracy.margin, .at_least
    size         bytes over those of its fp32                             gate.size.max_ratio
    speed-up     over its fp32, by the interval                           gate.latency.min_speedup
    latency      the typical call, by its interval                        decide.max_latency
    memory       the largest resident set                                 decide.max_memory, gate.memory.max_bytes
    cold start   load and first call, by the interval                     gate.cold_start.max_seconds
    coverage     the share of multiply-accumulates in int8                gate.coverage.min_share
    peak         no faster than this core's measured peak allows          the roofline

What the gate holds against a baseline is a ``LimitCheck`` of its own rules. The sentence of a check is written where it
is said: ``limit_text`` for a decision, ``gate`` for a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from qbench.compare import above_peak, compare, int8_share
from qbench.compare.speedup_doubt import find_doubt, room_to_promise
from qbench.decide import cases
from qbench.measure import percentiles
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import thresholds
from qbench.stats.interval_type import Interval
from qbench.stats.noninferiority import NonInferiority
from qbench.stats.thresholds import Outcome
from qbench.suite.accuracy import AccuracyGate
from qbench.suite.gate import GateSpec, resolve_overrides
from qbench.suite.settings import DecideSpec

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Place = Callable[[str], str]
Side = Literal["above", "below"]


# Two scores that are held to a least one tie where they are no further apart: half a per cent of what fp32 has by
# definition (half a point, as with the default margin), but for dB, whose 100 are no more than where it is cut.
FLOOR_TIE, TIES = 0.005, {"dB": 1.0}


@dataclass(frozen=True, kw_only=True)
class AccuracyMargin:
    """The most that a case may lose against its fp32: ``loss`` in shown units (points for a metric in percent)."""

    loss: float
    key: ClassVar[str] = "gate.accuracy.margin"

    @property
    def value(self) -> float:
        """The number that the suite gives."""
        return self.loss

    def tie(self, metric: MetricInfo) -> float:
        """The difference that nobody should ship for, in shown units: half the margin."""
        return self.loss / 2


@dataclass(frozen=True, kw_only=True)
class AccuracyFloor:
    """The least score of a case: ``value`` in shown units, of a metric by which fp32 scores ``perfect``."""

    value: float
    perfect: float
    key: ClassVar[str] = "gate.accuracy.at_least"

    @property
    def loss(self) -> float:
        """What a case may lose at most against its fp32."""
        return self.perfect - self.value

    def tie(self, metric: MetricInfo) -> float:
        """The difference that nobody should ship for, in shown units."""
        return TIES.get(metric.unit, FLOOR_TIE * self.perfect)

    def find_score(self, change: Interval, metric: MetricInfo) -> Interval:
        """The score, in the metric's own scale, that a change against fp32 leaves."""
        perfect = self.perfect / metric.scale
        low, high = (None if end is None else perfect + end for end in (change.low, change.high))
        return Interval(value=perfect + change.value, low=low, high=high)


AccuracyLimit = AccuracyMargin | AccuracyFloor


def find_accuracy_limit(accuracy: AccuracyGate) -> AccuracyLimit:
    """What a suite demands of accuracy: a least score where it gives one, else a margin."""
    if accuracy.floor is None:
        return AccuracyMargin(loss=accuracy.margin)
    return AccuracyFloor(value=accuracy.floor, perfect=accuracy.floor + accuracy.margin)


@dataclass(frozen=True, kw_only=True)
class LimitCheck:
    """A limit held against the case of a ``record``; ``outcome`` None: not measured (yet).

    The limit: its ``threshold`` in ``unit``, on the ``side`` of which the case must lie, by which ``key`` of the suite,
    at which ``place`` (file:line, where that is known). ``measured`` is what was held against it, with the limits that
    were tested, at ``level`` (of so many degrees of ``freedom``), ``doubt`` why what they say is not believed; None: no
    such number. Of accuracy these are the change in the metric's own scale, better positive, by the ``test``;
    ``bound`` is what the suite says of it.
    """

    record: Record
    limit: str
    key: str | None = None
    place: str | None = None
    threshold: float | None = None
    side: Side = "below"
    unit: str | None = None
    outcome: Outcome | None = None
    measured: Interval | None = None
    level: float | None = None
    freedom: int | None = None
    doubt: str | None = None
    metric: MetricInfo | None = None
    bound: AccuracyLimit | None = None
    test: NonInferiority | None = None

    def hold_number(self, value: float) -> LimitCheck:
        """A number without an interval, which may be as large as the threshold."""
        assert self.threshold is not None
        return replace(self, measured=Interval(value=value), outcome=thresholds.decide_number(value, self.threshold))

    def hold_interval(
        self, interval: Interval, level: float, *, freedom: int | None = None, doubt: str | None = None
    ) -> LimitCheck:
        """An interval: the whole of it must lie on the right side, and nothing speak against believing it."""
        assert self.threshold is not None
        outcome = thresholds.decide(interval, self.threshold, wanted=self.side) if doubt is None else "INCONCLUSIVE"
        return replace(self, measured=interval, level=level, freedom=freedom, doubt=doubt, outcome=outcome)

    def hold_test(self, test: NonInferiority) -> LimitCheck:
        """The test of a loss by less than the threshold."""
        return replace(self, measured=test.delta, level=test.level, outcome=test.outcome, test=test)


@dataclass(frozen=True, kw_only=True)
class CaseRules:
    """The rules that hold for one case. ``gate`` None: it cannot be read. ``keys``: where an override gives a key;
    ``place``: the file:line of a key, None where that is not known."""

    gate: GateSpec | None = None
    decide: DecideSpec = field(default_factory=DecideSpec)
    keys: Mapping[str, str] = field(default_factory=dict)
    place: Place | None = None

    @classmethod
    def of(cls, record: Record, gate: GateSpec | None, decide: DecideSpec, place: Place | None = None) -> CaseRules:
        """Those of a case, overrides put in."""
        if gate is None:
            return cls(decide=decide)
        resolved, keys = resolve_overrides(gate, record.case)
        return cls(gate=resolved, decide=decide, keys=keys, place=place)

    def limit(
        self,
        record: Record,
        limit: str,
        key: str | None = None,
        threshold: float | None = None,
        *,
        side: Side = "below",
        unit: str | None = None,
    ) -> LimitCheck:
        """A limit of the suite on a case, with nothing held against it yet."""
        place = None
        if key is not None and self.gate is not None:
            key = self.keys.get(key, key)
            place = None if self.place is None else self.place(key)
        return LimitCheck(record=record, limit=limit, key=key, place=place, threshold=threshold, side=side, unit=unit)


# --- one function for each limit; None: the suite has no such limit ------------------------------------------------


def check_int8(record: Record, rules: CaseRules) -> LimitCheck:
    """Whether it is int8, or bf16 or fp16, in more than name."""
    coverage = record.artifact.coverage if record.artifact else None
    if record.case.mode == "dynamic" and coverage is not None and coverage.macs_int8 is not None:
        key, least = "quantize.dynamic.min_coverage", int8_share.least_coverage(record)
        check = rules.limit(record, "int8", key, least, side="above", unit="of its multiply-accumulates")
        check = replace(check, measured=Interval(value=coverage.macs_int8))
    else:
        check = rules.limit(record, "int8")
    return replace(check, outcome="PASS" if cases.runs_as_named(record) else "FAIL")


def check_accuracy(
    record: Record,
    fp32: Record | None,
    rules: CaseRules,
    metric: MetricInfo | None,
    pairs: compare.Pairs = lambda record, fp32: None,
) -> LimitCheck:
    """The non-inferiority test of a case against its fp32; ``pairs`` gives the metric of each example of both."""
    if rules.gate is None:
        return rules.limit(record, "accuracy")
    bound = find_accuracy_limit(rules.gate.accuracy)
    check = replace(rules.limit(record, "accuracy", bound.key, side="above"), bound=bound)
    if metric is None:
        return check
    check = replace(check, threshold=-bound.loss / metric.scale, metric=metric)

    def read() -> tuple[ArrayLike, ArrayLike] | None:
        return None if fp32 is None else pairs(record, fp32)

    test = compare.accuracy_test(record, metric, bound.loss, read)
    return check if test is None else replace(check.hold_test(test), unit=metric.unit or None)


def check_size(record: Record, records: Sequence[Record], rules: CaseRules) -> LimitCheck | None:
    """Whether its bytes are within the promised share of those of its fp32."""
    if rules.gate is None or rules.gate.size.max_ratio is None:
        return None
    most, ratio = rules.gate.size.max_ratio, compare.size_ratio(compare.like_for_like(record, records), record)
    check = rules.limit(record, "size", "gate.size.max_ratio", most, unit="bytes over fp32's")
    return check if ratio is None else check.hold_number(ratio)


def check_speedup(record: Record, rules: CaseRules) -> LimitCheck | None:
    """Whether it is as fast as promised, by the speed-up that the run measured side by side."""
    if rules.gate is None or rules.gate.latency.min_speedup is None:
        return None
    return hold_promise(record, rules, rules.gate.latency.min_speedup)


def hold_promise(record: Record, rules: CaseRules, promise: float) -> LimitCheck:
    """The speed-up of a case held against a promise, the suite's or another."""
    unit = "times as fast as its fp32"
    check = rules.limit(record, "speed-up", "gate.latency.min_speedup", promise, side="above", unit=unit)
    speedup = record.speedup
    if speedup is None:
        return check
    interval = Interval(value=speedup.value, low=speedup.low, high=speedup.high)
    freedom = speedup.processes - 1 if speedup.processes > 1 else None
    held = check.hold_interval(interval, speedup.level, freedom=freedom)
    if held.outcome == "INCONCLUSIVE":
        return held
    doubt = find_doubt(speedup, room_to_promise(speedup.value, promise), "half the distance to the promise")
    return check.hold_interval(interval, speedup.level, freedom=freedom, doubt=doubt)


def check_latency(record: Record, rules: CaseRules) -> LimitCheck | None:
    """Whether its typical call is short enough to be shipped."""
    if rules.decide.max_latency is None:
        return None
    check = rules.limit(record, "latency", "decide.max_latency", rules.decide.max_latency, unit="s")
    latency, typical = record.latency, cases.p50(record)
    if latency is None or typical is None:
        return check
    interval = Interval(value=typical, low=latency.p50_low, high=latency.p50_high)
    return check.hold_interval(interval, percentiles.LEVEL)


def check_memory(record: Record, rules: CaseRules) -> LimitCheck | None:
    """Whether its resident set is small enough to be shipped."""
    if rules.decide.max_memory is None:
        return None
    check = rules.limit(record, "memory", "decide.max_memory", rules.decide.max_memory, unit="bytes")
    resident = cases.resident_bytes(record)
    return check if resident is None else check.hold_number(resident)


def check_peak_memory(record: Record, rules: CaseRules) -> LimitCheck | None:
    """Whether the peak of its resident set is as small as the gate demands."""
    if rules.gate is None or rules.gate.memory.max_bytes is None:
        return None
    most = float(rules.gate.memory.max_bytes)
    check = rules.limit(record, "memory", "gate.memory.max_bytes", most, unit="bytes")
    peak = None if record.memory is None else record.memory.peak_rss_bytes
    return check if peak is None else check.hold_number(float(peak))


def check_cold_start(record: Record, rules: CaseRules) -> LimitCheck | None:
    """Whether it loads and answers soon enough, by the medians over the run's processes."""
    if rules.gate is None or rules.gate.cold_start.max_seconds is None:
        return None
    most = rules.gate.cold_start.max_seconds
    check = rules.limit(record, "cold start", "gate.cold_start.max_seconds", most, unit="s")
    if (start := record.cold_start) is None:
        return check
    lows, highs = (start.load_low, start.first_call_low), (start.load_high, start.first_call_high)
    low, high = (None if None in ends else sum(filter(None, ends)) for ends in (lows, highs))
    return check.hold_interval(
        Interval(value=start.load_seconds + start.first_call_seconds, low=low, high=high), START_LEVEL
    )


START_LEVEL = 0.95  # of the limits that a record holds of its cold start


def check_coverage(record: Record, rules: CaseRules) -> LimitCheck | None:
    """Whether enough of it runs in the format that its mode names, as the share that does not."""
    if rules.gate is None or rules.gate.coverage.min_share is None:
        return None
    most = 1 - rules.gate.coverage.min_share
    check = rules.limit(record, "coverage", "gate.coverage.min_share", most, unit="of its multiply-accumulates")
    coverage = None if record.artifact is None else record.artifact.coverage
    share = None if coverage is None else coverage.share_of(record.case.mode)
    return check if share is None else check.hold_number(1 - share)


def check_peak(record: Record, rules: CaseRules) -> LimitCheck | None:
    """A FAIL where the case is faster than this core can be."""
    if not above_peak.is_impossible(record):
        return None
    return replace(rules.limit(record, "peak"), outcome="FAIL")
