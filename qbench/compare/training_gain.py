"""What of a QAT variant's gain is the training's, and what int8's own; pure.

A QAT variant was trained longer than the fp32 that it is compared with, so it may beat it, which no int8 form of the
same weights explains. Its fp32 twin (``quantize.qat.fp32_twin``), trained alike without fake quantization, is the fair
reference: the change against it is int8's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qbench import formatting
from qbench.compare import compare
from qbench.record.schema import Accuracy, Flips, Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import mcnemar
from qbench.stats.interval_type import Interval

CHANCE = 0.05  # two-sided


@dataclass(frozen=True, kw_only=True)
class TrainingGain:
    """A QAT case that beats its like-for-like fp32 beyond chance: ``gain`` over it, better is positive. ``twin`` is the
    id of its fp32 twin, ``int8_change`` its change against that one (None: it has none, or it has no result)."""

    case: str
    variant: str
    gain: Interval
    twin: str | None = None
    int8_change: Interval | None = None


def find_training_gain(record: Record, metric: MetricInfo) -> TrainingGain | None:
    """The gain of a QAT case over its fp32 where it is beyond chance; None for any other case.

    By McNemar's mid-p value where the flips are the whole change, else by the 95 % limits of the paired change.
    """
    accuracy = record.accuracy
    if record.status != "ok" or record.case.mode != "qat" or accuracy is None or accuracy.delta is None:
        return None
    gain = compare.oriented(accuracy.delta, metric.sign)
    if not _is_beyond_chance(accuracy, gain):
        return None
    twin = accuracy.twin
    int8_change = None if twin is None or twin.delta is None else compare.oriented(twin.delta, metric.sign)
    return TrainingGain(
        case=record.case.id,
        variant=record.case.variant,
        gain=gain,
        twin=None if twin is None or int8_change is None else twin.baseline,
        int8_change=int8_change,
    )


def _is_beyond_chance(accuracy: Accuracy, gain: Interval) -> bool:
    flips: Flips | None = compare.whole_change(accuracy)
    if flips is not None:
        return flips.beneficial > flips.harmful and mcnemar.midp(flips.harmful, flips.beneficial) < CHANCE
    return gain.low is not None and gain.low > 0


def describe_training_gains(records: Iterable[Record], metric: MetricInfo) -> tuple[str, ...]:
    """A sentence, without its full stop, on each gain that has a twin, and one on all those that have none."""
    gains = [gain for record in records if (gain := find_training_gain(record, metric)) is not None]
    with_twin = [_describe_own(gain, gain.int8_change, metric) for gain in gains if gain.int8_change is not None]
    without = [f"{gain.variant} ({_amount(gain, metric)})" for gain in gains if gain.int8_change is None]
    if not without:
        return tuple(with_twin)
    missing = (
        f"{', '.join(without)}: the gain over fp32 is the training's, not int8's: fp32 was trained less; set "
        "quantize.qat.fp32_twin: true for the fair reference"
    )
    return (*with_twin, missing)


def _describe_own(gain: TrainingGain, int8_change: Interval, metric: MetricInfo) -> str:
    return (
        f"{gain.variant}: of {_amount(gain, metric)} over fp32, int8's own change, against the fp32 twin of the same "
        f"training, is {metric.show_change(int8_change)}"
    )


def _amount(gain: TrainingGain, metric: MetricInfo) -> str:
    number = formatting.number(gain.gain, scale=metric.scale, signed=True, least=metric.least)
    return f"{number} {metric.unit}".rstrip()
