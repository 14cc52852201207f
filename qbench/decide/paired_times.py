"""How much longer one case of a setting takes than another, by the strongest evidence that is stored; pure.

rounds     blocks of both ran in the same rounds: what slows a round cancels
baseline   both ran beside the same fp32, in the same generations of processes
apart      each over the run's fastest fp32, else two p50: not measured against each other
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from qbench.decide import cases
from qbench.errors import QbenchError
from qbench.measure.paired_difference import (
    PairedDifference,
    compare_minima,
    difference_over_generations,
    quantile_of_t,
)
from qbench.measure.pairing import Minima, list_minima
from qbench.measure.samples import Samples
from qbench.record.schema import Record
from qbench.stats.interval_type import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

Evidence = Literal["rounds", "baseline", "apart", "p50"]
# Absolute latency differs by 16 to 22 % from one process to the next: two standard errors of two p50.
P50_SPREAD = 0.22
MOST_LOG = 30.0  # no case is 10^13 times as fast as another; such a number is no measurement
NORMAL = 1000  # degrees of freedom at which Student's t is the normal distribution


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """ln(case / other) of what is minimized, and what it rests on."""

    difference: PairedDifference
    evidence: Evidence | Literal["recorded"]

    @property
    def value(self) -> float:
        """The estimate of ln(case / other)."""
        return self.difference.value

    @property
    def low(self) -> float:
        """Its lower limit, two-sided at 95 %."""
        return self.difference.limits()[0]

    @property
    def high(self) -> float:
        """Its upper limit, two-sided at 95 %."""
        return self.difference.limits()[1]

    def ratio(self) -> Interval:
        """Of the case over the other, with limits."""
        value, low, high = (math.exp(max(-MOST_LOG, min(MOST_LOG, log))) for log in (self.value, self.low, self.high))
        return Interval(value=value, low=low, high=high)

    def p_not_below(self, threshold: float) -> float:
        """The one-sided p-value of "ln(case / other) is not below the threshold"."""
        return self.difference.p_not_below(threshold)


@dataclass(kw_only=True)
class PairedTimes:
    """The cases of one setting held against each other. ``problems`` collects why samples could not be read."""

    records: Mapping[str, Record]
    read: Callable[[Record], Arrays]
    problems: dict[str, str] = field(default_factory=dict)
    _samples: dict[str, Samples | None] = field(default_factory=dict)
    _minima: dict[str, Minima] = field(default_factory=dict)
    _known: dict[tuple[str, str], Comparison | None] = field(default_factory=dict)

    def compare(self, case: str, rival: str) -> Comparison | None:
        """How much longer ``case`` takes than ``other``; None where nothing is known of one of them."""
        if (case, rival) not in self._known:
            self._known[case, rival] = self._compare(self.records[case], self.records[rival])
        return self._known[case, rival]

    def _compare(self, record: Record, rival: Record) -> Comparison | None:
        samples, rival_samples = self._load(record), self._load(rival)
        if samples is not None and rival_samples is not None:
            alike = (record.case.mode == "fp32") == (rival.case.mode == "fp32")
            difference = compare_minima(self._list_minima(record), self._list_minima(rival), alike=alike)
            if difference is not None:
                return Comparison(difference=difference, evidence="rounds")
            if (difference := _over_baseline(record, samples, rival, rival_samples)) is not None:
                return Comparison(difference=difference, evidence="baseline")
        if (difference := _over_speedup(record, rival)) is not None:
            return Comparison(difference=difference, evidence="baseline")
        if (difference := _over_same(record, rival)) is not None:
            return Comparison(difference=difference, evidence="apart")
        difference = _over_p50(record, rival)
        return None if difference is None else Comparison(difference=difference, evidence="p50")

    def spread_over_processes(self, case: str) -> float | None:
        """ln of how many times as long a call of a case takes in its slowest process as in its fastest, by undisturbed
        blocks where two have any; None of one process, or where the rounds are not known."""
        minima = self._list_minima(self.records[case])
        calm = {key: block for key, block in minima.items() if block.calm}
        by_process: dict[int, list[float]] = {}
        for (process, _), block in (calm if len({process for process, _ in calm}) > 1 else minima).items():
            by_process.setdefault(process, []).append(block.nanoseconds)
        typical = [statistics.median(values) for values in by_process.values()]
        return math.log(max(typical) / min(typical)) if len(typical) > 1 else None

    def _list_minima(self, record: Record) -> Minima:
        """The fastest call of each block of each round; a case meets many others, so it is kept."""
        if record.case.id not in self._minima:
            samples = self._load(record)
            self._minima[record.case.id] = {} if samples is None else list_minima(samples, self._calm_ns)
        return self._minima[record.case.id]

    @functools.cached_property
    def _calm_ns(self) -> float | None:
        """What the canary is known to take on a core of its own: the least that a case of the setting was held to."""
        watched = [record.interference for record in self.records.values() if record.interference is not None]
        return min((facts.calm_seconds * 1e9 for facts in watched if facts.calm_seconds is not None), default=None)

    def _load(self, record: Record) -> Samples | None:
        case = record.case.id
        if case not in self._samples:
            self._samples[case] = None
            if record.samples is not None:
                try:
                    arrays = self.read(record)
                    self._samples[case] = _as_samples(arrays)
                    if not arrays:
                        self.problems[case] = f"{record.samples} is not there"
                except (QbenchError, ValueError) as error:
                    self.problems[case] = str(error)
        return self._samples[case]


def _as_samples(arrays: Arrays) -> Samples | None:
    """The arrays of a stored file as samples; raises ``ValueError`` where they do not fit each other."""
    if "calls_ns" not in arrays or "block" not in arrays:
        return None
    import numpy as np

    scalars: dict[str, Any] = {"protocol": str, "stopped": str, "discarded": int, "seconds": float}
    named = {part.name for part in fields(Samples)} & arrays.keys()
    values: dict[str, Any] = {name: scalars[name](arrays[name]) if name in scalars else arrays[name] for name in named}
    if "process" not in values:  # of one process, as the first versions measured
        values["process"] = np.zeros(len(values.get("log_ratios", ())), dtype=np.int64)
    samples = Samples(**({"protocol": "", "stopped": ""} | values))
    if len(samples.calls_ns) != len(samples.block):
        raise ValueError("its calls and their blocks differ in number")
    blocks = 1 + np.count_nonzero(np.diff(samples.block)) if len(samples.block) else 0
    if len(samples.processor_ns) not in (0, len(samples.calls_ns)) or len(samples.canary_ns) not in (0, blocks):
        raise ValueError("its calls differ in number from what was read beside them")
    if len(samples.log_ratios) and len(samples.log_ratios) != len(samples.process):
        raise ValueError("its log ratios and their processes differ in number")
    if not (np.abs(samples.log_ratios) < MOST_LOG).all():
        raise ValueError("its log ratios are none of two times")
    return samples


def _over_baseline(record: Record, own: Samples, other: Record, its: Samples) -> PairedDifference | None:
    """From the log ratios of each over the fp32 beside it, where that is one and the same, or one of the two."""
    speedup, rival = record.speedup, other.speedup
    if speedup is not None and speedup.baseline == other.case.id:
        return difference_over_generations(_by_process(own))
    if rival is not None and rival.baseline == record.case.id:
        return difference_over_generations({number: -values for number, values in _by_process(its).items()})
    if speedup is None or rival is None or speedup.baseline != rival.baseline:
        return None
    import numpy as np

    mine, theirs = _by_process(own), _by_process(its)
    shared = [number for number in mine if number in theirs]
    medians = {number: np.asarray([np.median(mine[number]) - np.median(theirs[number])]) for number in shared}
    return difference_over_generations(medians)


def _by_process(samples: Samples) -> dict[int, NDArray[Any]]:
    """The log ratios by generation of processes."""
    if not len(samples.log_ratios):
        return {}
    return {
        int(number): samples.log_ratios[samples.process == number] for number in sorted(set(samples.process.tolist()))
    }


def _over_speedup(record: Record, rival: Record) -> PairedDifference | None:
    """From the stored speed-up of one over the other, where the other is its baseline."""
    for case, base, sign in ((record, rival, 1.0), (rival, record, -1.0)):
        for log in _logs(case):
            if log.baseline == base.case.id and base is not case:
                return _difference(sign * log.value, log.error, log.freedom)
    return None


def _over_same(record: Record, rival: Record) -> PairedDifference | None:
    """From two stored speed-ups over one and the same fp32, as independent."""
    for own in _logs(record):
        for its in _logs(rival):
            if own.baseline == its.baseline:
                error = math.hypot(own.error, its.error)
                return _difference(own.value - its.value, error, min(own.freedom, its.freedom))
    return None


@dataclass(frozen=True, kw_only=True)
class _Log:
    """ln(time over ``baseline``) of a case, its standard error and degrees of freedom."""

    baseline: str
    value: float
    error: float
    freedom: float


def _logs(record: Record) -> list[_Log]:
    """What the record itself says of its time over its own fp32, and over the fastest."""
    processes = 1 if record.speedup is None else record.speedup.processes
    freedom = processes - 1 if processes > 1 else NORMAL
    logs = []
    for ratio in (record.speedup, record.speedup_fastest):
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            error = abs(math.log(ratio.high) - math.log(ratio.low)) / 2 / quantile_of_t(0.975, freedom)
            logs.append(_Log(baseline=ratio.baseline, value=-math.log(ratio.value), error=error, freedom=freedom))
    return logs


def _over_p50(record: Record, rival: Record) -> PairedDifference | None:
    """From two typical calls; from two means where protocol sequential gave one speed-up from these."""
    typical = cases.mean if cases.is_sequential(record) or cases.is_sequential(rival) else cases.p50
    own, its = (typical(each) or cases.p50(each) for each in (record, rival))
    return None if own is None or its is None else _difference(math.log(own) - math.log(its), P50_SPREAD / 2, NORMAL)


def _difference(value: float, error: float, freedom: float) -> PairedDifference:
    return PairedDifference(value=value, error=max(error, 1e-6), freedom=freedom, generations=1, coarse=True)


def as_ratio(comparison: Comparison) -> Interval:
    """How many times as fast: the other's time over the case's."""
    ratio = comparison.ratio()
    assert ratio.low is not None
    assert ratio.high is not None
    return Interval(value=1 / ratio.value, low=1 / ratio.high, high=1 / ratio.low)


def paired_times(records: Sequence[Record], read: Callable[[Record], Arrays]) -> PairedTimes:
    """The cases of one setting, to be held against each other."""
    return PairedTimes(records={record.case.id: record for record in records}, read=read)
