"""Predictions of one output of every example -> a score with its interval, and the paired change against fp32."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from qbench.errors import EvaluateError
from qbench.metrics.base import Metric, keep_fixed
from qbench.metrics.validation import choose_classes, find_no_score
from qbench.record.schema import Accuracy, Flips
from qbench.stats import intervals, jackknife
from qbench.stats.interval_type import LARGEST, Interval

Array = NDArray[Any]
IntervalMethod = Literal["score", "weighted mean", "jackknife", "paired bootstrap"]
LEVEL = 0.95
# A score of the user's own takes as long as it takes, each time. Of 400 resamples a 95 % limit lies 10 from the end.
RESAMPLES_OF_OWN = 400


def score_predictions(
    metric: Metric,
    predictions: dict[str, Array],
    baseline: dict[str, Array] | None,
    classes: int | None,
    fp32: dict[str, Array] | None = None,
) -> Accuracy:
    """The score with its interval, and against the baseline's predictions the paired delta, agreement and flips.

    A metric against fp32 takes the baseline's outputs in place of labels, or those of ``fp32`` where the baseline is
    another variant, whose score is then not perfect; without a baseline the predictions are fp32's own. Raises
    ``EvaluateError`` where the outputs do not fit the metric (NaN, another shape, no labels), or it gives no number.
    """
    outputs, labels, exact = predictions["outputs"], predictions.get("labels"), fp32 or baseline
    outputs = _keep_fixed(metric, outputs, labels, exact)
    problem = metric.problem(outputs, labels, classes)
    if problem:
        raise EvaluateError(problem)
    reference = find_reference(metric, predictions, exact)
    variant = _ScoredVariant(metric, outputs, reference)
    if variant.n == 0:
        raise EvaluateError(
            f"{metric.name}: no evaluation example counts: none is of that class, or no query has a relevant document "
            "among them; evaluate on more"
        )
    if baseline is None and metric.against == "fp32":  # so by definition: nothing was estimated
        value = metric.perfect
        if value is None:
            value = _require_score(metric, metric.value(outputs, reference))
        only = _only_answer(metric, outputs, labels)
        return Accuracy(metric=metric.name, value=value, low=None, high=None, n=variant.n, only_answer=only)
    estimate = variant.interval()
    accuracy = Accuracy(
        metric=metric.name,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        n=variant.n,
        interval=variant.interval_method,
        only_answer=_only_answer(metric, outputs, labels),
    )
    if baseline is None:
        return accuracy
    return replace(
        accuracy,
        delta=(_from_perfect(metric, estimate) if fp32 is None else None)
        or variant.change(_ScoredVariant(metric, _keep_fixed(metric, baseline["outputs"], labels, exact), reference)),
        agreement=_agreement(outputs, baseline["outputs"], labels),
        flips=_flips(outputs, baseline["outputs"], labels),
    )


def find_reference(metric: Metric, predictions: dict[str, Array], baseline: dict[str, Array] | None) -> Array:
    """What the outputs are held against; raises ``EvaluateError`` where there is none that fits."""
    if metric.against == "labels":
        if "labels" not in predictions:
            raise EvaluateError(f"{metric.name} needs labels, and the data set has none")
        return predictions["labels"]
    outputs = predictions["outputs"]
    fp32 = outputs if baseline is None else baseline["outputs"]
    if fp32.shape != outputs.shape:
        raise EvaluateError(f"the outputs have the shape {outputs.shape}, those of its fp32 {fp32.shape}")
    if not np.isfinite(fp32).all():
        raise EvaluateError(f"outputs of its fp32 are NaN or infinite, so {metric.name} has nothing to hold it against")
    return fp32


def _keep_fixed(metric: Metric, outputs: Array, labels: Array | None, fp32: dict[str, Array] | None) -> Array:
    try:
        return keep_fixed(metric, outputs, labels, None if fp32 is None else fp32["outputs"])
    except ValueError as error:
        raise EvaluateError(str(error)) from error


def _require_score(metric: Metric, value: float) -> float:
    """The score of several examples; raises ``EvaluateError`` where it is no number, or too large for a score."""
    if not abs(value) <= LARGEST:
        raise EvaluateError(f"{metric.name} gives {find_no_score(value)}")
    return float(value)


def _from_perfect(metric: Metric, estimate: Interval) -> Interval | None:
    """The distance of a score from the one that fp32 has by definition; None without that, or without limits."""
    if metric.against != "fp32" or metric.perfect is None or estimate.low is None or estimate.high is None:
        return None
    return Interval(
        value=estimate.value - metric.perfect, low=estimate.low - metric.perfect, high=estimate.high - metric.perfect
    )


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


class _ScoredVariant:
    """One variant as the metric sees it: ``values`` of its examples, or None where only resamples can be scored, and
    then each resample once, since the interval of the score and that of its change draw the same ones."""

    def __init__(self, metric: Metric, outputs: Array, reference: Array) -> None:
        self._metric, self._outputs, self._reference = metric, outputs, reference
        self.values = metric.per_example(outputs, reference)
        problem = None if self.values is None else find_no_score(self.values)
        if problem:
            raise EvaluateError(f"{metric.name} gives {problem}")
        self._facts = None if self.values is not None else metric.facts(outputs, reference)
        self.n = next(len(rows) for rows in (self.values, self._facts, outputs) if rows is not None)
        self._known: dict[bytes, float] = {}

    @property
    def interval_method(self) -> IntervalMethod:
        """How the limits come about: of right or wrong, of another mean, or of what has no value for each example."""
        if self.values is None:
            return "paired bootstrap" if self._facts is None else "jackknife"
        return "score" if intervals.is_binary(np.asarray(self.values, dtype=np.float64)) else "weighted mean"

    def interval(self) -> Interval:
        """The score with its limits."""
        if self.values is not None:
            return intervals.mean(self.values, LEVEL)
        if self._facts is not None:
            return jackknife.limit_score(self._fact_score, self._facts, LEVEL)
        return intervals.paired_bootstrap(self.on, self.n, level=LEVEL, resamples=RESAMPLES_OF_OWN)

    def change(self, fp32: _ScoredVariant) -> Interval:
        """This score minus fp32's on the same examples, with its limits."""
        if (self.values is None) != (fp32.values is None):
            raise EvaluateError(
                f"{self._metric.name} gives one number for all examples at one time and one for each at another, which "
                "cannot be compared; give the same each time"
            )
        if self.values is not None and fp32.values is not None:
            delta, size = intervals.paired_delta(self.values, fp32.values, LEVEL), _root_mean_square(self.values)
        else:
            delta, size = self._limit_change(fp32), abs(self.on(np.arange(self.n))) or self._metric.unseen
        return self._with_unseen(delta, fp32, size)

    def _limit_change(self, fp32: _ScoredVariant) -> Interval:
        """The change of what no example has alone, with its limits."""
        if self._facts is not None and fp32._facts is not None:
            return jackknife.limit_change(self._fact_score, *jackknife.align_facts(self._facts, fp32._facts), LEVEL)
        return intervals.paired_bootstrap(
            lambda index: self.on(index) - fp32.on(index), self.n, level=LEVEL, resamples=RESAMPLES_OF_OWN
        )

    def _with_unseen(self, delta: Interval, fp32: _ScoredVariant, size: float) -> Interval:
        """The limits, wide enough for changes that so few examples need not show."""
        ours, theirs = jackknife.align_facts(self._rows, fp32._rows)
        changed = np.count_nonzero((ours != theirs).reshape(len(ours), -1).any(axis=1))
        enough = changed >= min(intervals.FEW_CHANGED, self.n) or (changed and self.values is not None)
        return delta if size == 0 or enough else intervals.widen_for_unseen(delta, self.n, size, LEVEL)

    @property
    def _rows(self) -> Array:
        """All that the score depends on, one row an example."""
        if self.values is not None:
            return self.values
        return self._outputs if self._facts is None else self._facts

    def on(self, index: NDArray[np.intp]) -> float:
        """The score of the examples at these positions; NaN where a score of the user's own fails on a resample, say
        since a class is not in it."""
        key = hashlib.sha256(index.tobytes()).digest()
        if key not in self._known:
            self._known[key] = self._score(index)
        return self._known[key]

    @property
    def _fact_score(self) -> jackknife.FactScore:
        return jackknife.FactScore(of=self._score_facts, groups=self._metric.groups)

    def _score_facts(self, facts: Array) -> float:
        return _require_score(self._metric, self._metric.of_facts(facts))

    def _score(self, index: NDArray[np.intp]) -> float:
        if self._facts is not None:
            return self._score_facts(self._facts[index])
        try:
            return self._metric.value(self._outputs[index], self._reference[index])
        except EvaluateError:
            return math.nan


def _agreement(outputs: Array, baseline: Array, labels: Array | None) -> float | None:
    """The share of examples with the same top-1 class; None where outputs are not scores of classes, or labels tell
    that they are embeddings of texts."""
    if not _are_classes(outputs, labels) or baseline.shape != outputs.shape or (labels is not None and labels.ndim > 1):
        return None
    return float(np.mean(choose_classes(outputs) == choose_classes(baseline)))


def _flips(outputs: Array, baseline: Array, labels: Array | None) -> Flips | None:
    """Which right answers became wrong and the other way round; None without labels of classes."""
    if labels is None or labels.ndim != 1 or labels.dtype.kind not in "iu" or baseline.shape != outputs.shape:
        return None
    if not _are_classes(outputs, labels):
        return None
    ours, theirs = choose_classes(outputs) == labels, choose_classes(baseline) == labels
    return Flips(harmful=int(np.sum(theirs & ~ours)), beneficial=int(np.sum(ours & ~theirs)))


def _only_answer(metric: Metric, outputs: Array, labels: Array | None) -> int | None:
    """The class that is chosen for every one of several examples; None where there are more, or none are meant."""
    of_classes = metric.percent if labels is None else labels.ndim == 1 and labels.dtype.kind in "iu"
    if len(outputs) < 2 or not of_classes or not _are_classes(outputs, labels):
        return None
    classes = choose_classes(outputs)
    return int(classes[0]) if (classes == classes[0]).all() else None


def _are_classes(outputs: Array, labels: Array | None) -> bool:
    """Whether outputs are class scores: several columns, or one logit where the labels are 0 and 1."""
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        return True
    single = outputs.ndim <= 2 and outputs[0].size == 1
    return single and labels is not None and labels.dtype.kind in "iu" and bool(np.isin(labels, (0, 1)).all())
