"""How a variant's accuracy spreads over the calibration subsets that other seeds choose; pure.

What is measured and shipped is the variant of the first seed. How far the others lie from it says how much of its
accuracy the recipe decides and how much the choice of examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from qbench.compare import compare
from qbench.record.schema import Accuracy, Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import noninferiority
from qbench.stats.interval_type import Interval


@dataclass(frozen=True, kw_only=True)
class SeedSpread:
    """A variant's scores by calibration seed, the shipped one's first: ``seeds`` with their ``values``, the seed of the
    ``worst`` and the accuracy test of that one (None where there is no margin to test); ``failed`` says why a seed has
    no score."""

    seeds: tuple[int, ...]
    values: tuple[float, ...]
    worst: int
    test: noninferiority.NonInferiority | None = None
    failed: Mapping[int, str] = field(default_factory=dict)

    @property
    def spread(self) -> float:
        """Best minus worst, in the metric's own scale."""
        return max(self.values) - min(self.values)


def measure_spread(
    record: Record,
    fp32: Record | None,
    metric: MetricInfo,
    margin: float | None,
    pairs: compare.Pairs = lambda record, fp32: None,
) -> SeedSpread | None:
    """The spread of a case whose record holds the scores of several calibration seeds; None for any other.

    The worst seed's variant is tested like the shipped one: on the values of each example where its predictions are
    stored (``pairs``), else on the shipped one's interval, moved to where the worst one is.
    """
    accuracy = record.accuracy
    if accuracy is None or accuracy.calibration is None:
        return None
    scores = accuracy.calibration
    scored = [(seed, value, at) for at, (seed, value) in enumerate(zip(scores.seeds, scores.values, strict=True))
              if value is not None]  # fmt: skip
    if len(scores.seeds) < 2 or not scored:
        return None
    seed, value, at = min(scored, key=lambda entry: entry[1] * metric.sign)
    test = None
    if margin is not None:
        file = scores.predictions[at] if at < len(scores.predictions) else None
        test = _test_worst(replace(record, predictions=file), fp32, accuracy, value, metric, margin, pairs)
    reasons = zip(scores.seeds, scores.values, scores.reasons or (None,) * len(scores.seeds), strict=True)
    return SeedSpread(
        seeds=tuple(seed for seed, _, _ in scored),
        values=tuple(value for _, value, _ in scored),
        worst=seed,
        test=test,
        failed={seed: reason or "not scored" for seed, value, reason in reasons if value is None},
    )


def _test_worst(
    worst: Record,
    fp32: Record | None,
    shipped: Accuracy,
    value: float,
    metric: MetricInfo,
    margin: float,
    pairs: compare.Pairs,
) -> noninferiority.NonInferiority | None:
    pair = None if fp32 is None or worst.predictions is None else pairs(worst, fp32)
    if pair is not None:
        return compare.judge_examples(*pair, metric, margin / metric.scale)
    if shipped.delta is None:
        return None
    moved = compare.oriented(_shift(shipped.delta, value - shipped.value), metric.sign)
    return noninferiority.assess_interval(moved, margin / metric.scale, n=shipped.n)


def _shift(interval: Interval, by: float) -> Interval:
    low, high = (None if limit is None else limit + by for limit in (interval.low, interval.high))
    return Interval(value=interval.value + by, low=low, high=high)


def find_warning(
    case: str, shipped: noninferiority.NonInferiority | None, spread: SeedSpread, metric: MetricInfo
) -> str | None:
    """Why the verdict on a case depends on which calibration examples were chosen; None where it does not."""
    if shipped is None or spread.test is None or shipped.outcome != "PASS" or spread.test.outcome == "PASS":
        return None
    return (
        f"{case}: PASS with the calibration examples of seed {spread.seeds[0]}, {spread.test.outcome} with those of "
        f"seed {spread.worst} ({describe_change(spread, metric)}): the choice of the examples decides; raise "
        "data.calibrate.samples or choose another calibrator"
    )


def describe_change(spread: SeedSpread, metric: MetricInfo) -> str:
    """``top1 -1.3 [-2.1, -0.5] points``: the worst seed's change against fp32, with the limits it was tested by."""
    if spread.test is None:
        return ""
    return f"{metric.name} {metric.show_change(compare.oriented(spread.test.delta, metric.sign))}"
