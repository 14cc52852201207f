"""Stage 4, continued: predictions of every example -> a score with its interval, and the paired change against fp32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry, stats
from qbench.errors import EvaluateError
from qbench.evaluate import input_fits, load_predictions
from qbench.metrics.base import Metric
from qbench.process import Limits, call
from qbench.record import Accuracy, Flips, Interval

Array = NDArray[Any]
Progress = Callable[[str, float], None]
LEVEL = 0.95


def score(
    metric: str, file: Path, baseline: Path | None, classes: int | None, *, limits: Limits, progress: Progress
) -> Accuracy:
    """``scored`` of two files of predictions, in a process of its own: a bootstrap takes seconds."""
    found: Accuracy = call(_score_files, metric, file, baseline, classes, limits=limits, progress=progress)
    return found


def _score_files(
    metric: str, file: Path, baseline: Path | None, classes: int | None, *, progress: Progress
) -> Accuracy:
    progress("score", 0.9)
    base, own = None if baseline is None else load_predictions(baseline), load_predictions(file)
    return replace(scored(registry.load("metric", metric), own, base, classes), inputs=input_fits(own))


def scored(metric: Metric, own: dict[str, Array], baseline: dict[str, Array] | None, classes: int | None) -> Accuracy:
    """The score with its interval, and against the baseline's predictions the paired delta, agreement and flips.

    Raises ``EvaluateError`` where the outputs do not fit the metric (NaN, another shape, no labels).
    """
    outputs, labels = own["outputs"], own.get("labels")
    problem = metric.problem(outputs, labels, classes)
    if problem or labels is None:
        raise EvaluateError(problem or f"{metric.name} needs labels")
    values = metric.per_example(outputs, labels)
    interval = _interval(metric, outputs, labels, values)
    accuracy = Accuracy(metric=metric.name, value=interval.value, low=interval.low, high=interval.high, n=len(labels))
    if baseline is None:
        return accuracy
    return Accuracy(
        metric=metric.name,
        value=interval.value,
        low=interval.low,
        high=interval.high,
        n=len(labels),
        delta=_delta(metric, outputs, baseline["outputs"], labels, values),
        agreement=_agreement(outputs, baseline["outputs"]),
        flips=_flips(outputs, baseline["outputs"], labels),
    )


def _interval(metric: Metric, outputs: Array, labels: Array, values: Array | None) -> Interval:
    if values is not None:
        return stats.mean(values, LEVEL)
    return stats.paired_bootstrap(lambda index: metric.value(outputs[index], labels[index]), len(labels), level=LEVEL)


def _delta(metric: Metric, outputs: Array, baseline: Array, labels: Array, values: Array | None) -> Interval:
    if values is not None:
        theirs = metric.per_example(baseline, labels)
        if theirs is not None:
            return stats.paired_delta(values, theirs, LEVEL)
    return stats.paired_bootstrap(
        lambda index: metric.value(outputs[index], labels[index]) - metric.value(baseline[index], labels[index]),
        len(labels),
        level=LEVEL,
    )


def _agreement(outputs: Array, baseline: Array) -> float | None:
    """The share of examples with the same top-1 class; None where outputs are not scores of classes."""
    if outputs.ndim != 2 or outputs.shape[1] < 2:
        return None
    return float(np.mean(outputs.argmax(axis=1) == baseline.argmax(axis=1)))


def _flips(outputs: Array, baseline: Array, labels: Array) -> Flips | None:
    if outputs.ndim != 2 or outputs.shape[1] < 2 or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return None
    ours, theirs = outputs.argmax(axis=1) == labels, baseline.argmax(axis=1) == labels
    return Flips(harmful=int(np.sum(theirs & ~ours)), beneficial=int(np.sum(ours & ~theirs)))
