"""The luck of the calibration subset: what a variant's accuracy is with the subsets that other seeds draw; pure.

What is measured and shipped is the variant of the first seed. How far the others lie from it says how much of its
accuracy is the recipe's and how much the draw's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from qbench import compare, decide, wording
from qbench.record import Accuracy, Interval, Record
from qbench.stored import MetricInfo


@dataclass(frozen=True, kw_only=True)
class Luck:
    """A variant's scores by calibration seed, the shipped one's first: ``seeds`` with their ``values``, the seed of the
    ``worst`` and the accuracy test of that one (None where there is no margin to test); ``failed`` says why a seed has
    no score."""

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    worst: int
    test: decide.NonInferiority | None = None
    failed: Mapping[int, str] = field(default_factory=dict)

    @property
    def spread(self) -> float:
        """Best minus worst, in the metric's own scale."""
        return max(self.values) - min(self.values)


def luck(
    record: Record,
    fp32: Record | None,
    metric: MetricInfo,
    margin: float | None,
    pairs: compare.Pairs = lambda record, fp32: None,
) -> Luck | None:
    """The luck of a case whose record holds the scores of several calibration seeds; None for any other.

    The worst seed's variant is tested like the shipped one: on the values of each example where its predictions are
    stored (``pairs``), else on the shipped one's interval, moved to where the worst one is.
    """
    accuracy = record.accuracy
    if accuracy is None or accuracy.calibration is None:
        return None
    found = accuracy.calibration
    scored = [(seed, value, at) for at, (seed, value) in enumerate(zip(found.seeds, found.values, strict=True))
              if value is not None]  # fmt: skip
    if len(found.seeds) < 2 or not scored:
        return None
    seed, value, at = min(scored, key=lambda one: one[1] * metric.sign)
    test = None
    if margin is not None:
        file = found.predictions[at] if at < len(found.predictions) else None
        test = _test(replace(record, predictions=file), fp32, accuracy, value, metric, margin, pairs)
    reasons = zip(found.seeds, found.values, (*found.reasons, *[None] * len(found.seeds)), strict=False)
    return Luck(
        seeds=tuple(seed for seed, _, _ in scored),
        values=tuple(value for _, value, _ in scored),
        worst=seed,
        test=test,
        failed={seed: reason or "not scored" for seed, value, reason in reasons if value is None},
    )


def _test(
    worst: Record,
    fp32: Record | None,
    shipped: Accuracy,
    value: float,
    metric: MetricInfo,
    margin: float,
    pairs: compare.Pairs,
) -> decide.NonInferiority | None:
    pair = None if fp32 is None or worst.predictions is None else pairs(worst, fp32)
    if pair is not None:
        import numpy as np

        new, old = (metric.sign * np.asarray(values) for values in pair)
        return decide.non_inferiority(new, old, margin / metric.scale)
    if shipped.delta is None:
        return None
    moved = compare.oriented(_moved(shipped.delta, value - shipped.value), metric.sign)
    return decide.from_interval(moved, margin / metric.scale, n=shipped.n)


def _moved(interval: Interval, by: float) -> Interval:
    low, high = (None if limit is None else limit + by for limit in (interval.low, interval.high))
    return Interval(value=interval.value + by, low=low, high=high)


def warning(case: str, own: decide.NonInferiority | None, found: Luck, metric: MetricInfo) -> str | None:
    """Why the verdict on a case rests on the draw of its calibration examples; None where it does not."""
    if own is None or found.test is None or own.outcome != "PASS" or found.test.outcome == "PASS":
        return None
    return (
        f"{case}: PASS with the calibration examples of seed {found.seeds[0]}, {found.test.outcome} with those of seed "
        f"{found.worst} ({changed(found, metric)}): the draw of the examples decides; raise data.calibrate.samples or "
        "choose another calibrator"
    )


def changed(found: Luck, metric: MetricInfo) -> str:
    """``top1 -1.3 [-2.1, -0.5] points``: the worst seed's change against fp32, with the limits it was tested by."""
    if found.test is None:
        return ""
    change = compare.oriented(found.test.delta, metric.sign)
    amount = wording.with_limits(change, scale=metric.scale, signed=True, least=metric.least)
    return f"{metric.name} {amount} {metric.unit}".rstrip()


def warnings(cases: Sequence[tuple[str, decide.NonInferiority | None, Luck]], metric: MetricInfo) -> tuple[str, ...]:
    """The warnings on several cases, those without one left out."""
    found = (warning(case, own, one, metric) for case, own, one in cases)
    return tuple(one for one in found if one is not None)
