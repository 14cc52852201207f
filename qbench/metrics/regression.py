"""Scores of regression: outputs and labels are numbers of the same shape ((n, 1) outputs fit (n,) labels)."""

from __future__ import annotations

import numpy as np

from qbench.metrics.base import Array, Metric
from qbench.metrics.check import numbers_problem


def _problem(outputs: Array, labels: Array | None) -> str | None:
    problem = numbers_problem(outputs, labels)
    if problem or labels is None:
        return problem
    if outputs.size != labels.size:
        return f"outputs have the shape {outputs.shape}, labels {labels.shape}; expected the same numbers of values"
    return None if np.isfinite(labels).all() else "some labels are NaN or infinite"


class MeanAbsoluteError(Metric):
    """The mean absolute difference, in the unit of the labels."""

    name = "mae"
    percent = False
    higher_is_better = False

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs and labels are not comparable numbers."""
        return _problem(outputs, labels)

    def value(self, outputs: Array, labels: Array) -> float:
        """The mean over examples."""
        return float(self.per_example(outputs, labels).mean())

    def per_example(self, outputs: Array, labels: Array) -> Array:
        """The absolute difference of each example, the mean over its values where it has several."""
        difference = np.abs(outputs.reshape(labels.shape).astype(np.float64) - labels)
        averaged: Array = difference.reshape(len(labels), -1).mean(axis=1)
        return averaged


class RSquared(Metric):
    """The coefficient of determination, from scikit-learn: 1 is perfect, 0 is as good as the labels' mean."""

    name = "r2"
    percent = False

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs and labels are not comparable numbers, or the labels do not vary."""
        problem = _problem(outputs, labels)
        if problem or labels is None:
            return problem
        constant = (labels == labels[0]).reshape(len(labels), -1).all(axis=0).any()
        return "all labels are the same, so r2 is undefined; choose mae" if constant else None

    def value(self, outputs: Array, labels: Array) -> float:
        """The coefficient; can be below 0."""
        from sklearn.metrics import r2_score

        return float(r2_score(labels, outputs.reshape(labels.shape)))


MAE = MeanAbsoluteError()
R2 = RSquared()
