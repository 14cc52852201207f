"""Scores of regression: outputs and labels are numbers of the same shape ((n, 1) outputs fit (n,) labels)."""

from __future__ import annotations

import numpy as np

from qbench.metrics.base import Array, MeanMetric, WholeMetric
from qbench.metrics.validation import numbers_problem


def _problem(outputs: Array, labels: Array | None) -> str | None:
    problem = numbers_problem(outputs, labels)
    if problem or labels is None:
        return problem
    if outputs.size != labels.size:
        return f"outputs have the shape {outputs.shape}, labels {labels.shape}; expected the same numbers of values"
    return None if np.isfinite(labels).all() else "some labels are NaN or infinite"


def _errors(outputs: Array, labels: Array) -> Array:
    """Output minus label as (n, values), in double precision."""
    rows: Array = outputs.reshape(len(labels), -1).astype(np.float64) - labels.reshape(len(labels), -1)
    return rows


class MeanAbsoluteError(MeanMetric):
    """The mean absolute difference, in the unit of the labels."""

    name = "mae"
    percent = False
    higher_is_better = False

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs and labels are not comparable numbers."""
        return _problem(outputs, labels)

    def per_example(self, outputs: Array, labels: Array) -> Array:
        """The absolute difference of each example, the mean over its values where it has several."""
        averaged: Array = np.abs(_errors(outputs, labels)).mean(axis=1)
        return averaged


class RootMeanSquaredError(WholeMetric):
    """The root of the mean squared difference, in the unit of the labels: large errors count more than in ``mae``."""

    name = "rmse"
    percent = False
    higher_is_better = False

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs and labels are not comparable numbers."""
        return _problem(outputs, labels)

    def facts(self, outputs: Array, labels: Array) -> Array:
        """The squared difference of each example, the mean over its values where it has several."""
        squared: Array = np.square(_errors(outputs, labels)).mean(axis=1)
        return squared

    def of_facts(self, facts: Array) -> float:
        """The root of the mean."""
        return float(np.sqrt(facts.mean()))


class RSquared(WholeMetric):
    """The coefficient of determination as scikit-learn defines it, the mean over the values of an example where it has
    several: 1 is perfect, 0 is as good as the labels' mean."""

    name = "r2"
    percent = False

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs and labels are not comparable numbers, or the labels do not vary."""
        return _problem(outputs, labels) or _constant(labels, "r2")

    def facts(self, outputs: Array, labels: Array) -> Array:
        """Squared difference and label of each value, shape (n, 2, values)."""
        rows = labels.reshape(len(labels), -1).astype(np.float64)
        return np.stack([np.square(_errors(outputs, labels)), rows], axis=1)

    def of_facts(self, facts: Array) -> float:
        """The coefficient; can be below 0. Where labels do not vary (in a resample) it is 1 without errors, else 0."""
        wrong, labels = facts[:, 0].sum(axis=0), facts[:, 1]
        variation = np.square(labels - labels.mean(axis=0)).sum(axis=0)
        share = np.divide(wrong, variation, out=(wrong > 0).astype(np.float64), where=variation > 0)
        return float(1 - share.mean())


class Spearman(WholeMetric):
    """Spearman's rank correlation between outputs and labels, one number each: does the model order the examples as the
    labels do? Equal values share their mean rank; outputs that are all equal have no order, which scores 0."""

    name = "spearman"
    percent = False

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs and labels are not one number each, or the labels do not vary."""
        problem = _problem(outputs, labels)
        if problem is None and outputs.size != len(outputs):
            return f"outputs have the shape {outputs.shape}; spearman takes one number for each example"
        return problem or _constant(labels, "spearman")

    def facts(self, outputs: Array, labels: Array) -> Array:
        """Where each output and label stands among its like: whole numbers, equal for equal values, shape (n, 2)."""
        places = (np.unique(values.ravel(), return_inverse=True)[1] for values in (outputs, labels))
        return np.stack(list(places), axis=1)

    def of_facts(self, facts: Array) -> float:
        """The correlation of the mean ranks; the ranks of a resample are counted, not sorted."""
        ours, theirs = (_centred_ranks(column) for column in facts.T)
        norms = np.sqrt(ours @ ours) * np.sqrt(theirs @ theirs)
        return float(ours @ theirs / norms) if norms > 0 else 0.0


def _centred_ranks(places: Array) -> Array:
    """The mean rank of each value minus the mean of all."""
    counts = np.bincount(places)
    ranks: Array = (np.cumsum(counts) - (counts - 1) / 2)[places] - (len(places) + 1) / 2
    return ranks


def _constant(labels: Array | None, name: str) -> str | None:
    if labels is None or not (labels == labels[0]).reshape(len(labels), -1).all(axis=0).any():
        return None
    return f"all labels are the same, so {name} is undefined; choose mae"


MAE = MeanAbsoluteError()
RMSE = RootMeanSquaredError()
R2 = RSquared()
SPEARMAN = Spearman()
