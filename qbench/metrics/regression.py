"""Scores of regression: outputs and labels are numbers of the same shape ((n, 1) outputs fit (n,) labels)."""

from __future__ import annotations

import numpy as np

from qbench.metrics.base import Array, MeanMetric, Units, WholeMetric
from qbench.metrics.validation import numbers_problem

_DECIMALS = 12  # of a cosine


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
    labels do? Equal values share their mean rank; outputs that are all equal have no order, which scores 0.

    Of pairs outputs are embeddings (n, size), and labels (n, 2) say to which pair an example belongs, by a number that
    two of them have, and how alike the pair is. What is ordered then is the cosine of each pair that is whole, to 12
    decimals, below which it is a matter of rounding; that of an embedding of zeros is 0. The unit is the pair.
    """

    name = "spearman"
    percent = False

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs and labels are neither one number each nor pairs, or the labels do not vary."""
        if _are_pairs(outputs, labels):
            assert labels is not None
            problem = numbers_problem(outputs, labels)
            if problem is None and not np.isfinite(labels).all():
                return "some labels are NaN or infinite"
            scores = labels[_match_pairs(labels)[:, 0], 1]
            return problem or (_constant(scores, "spearman") if len(scores) else _explain_shape(outputs))
        problem = _problem(outputs, labels)
        if problem is None and outputs.size != len(outputs):
            return _explain_shape(outputs)
        return problem or _constant(labels, "spearman")

    def facts(self, outputs: Array, labels: Array) -> Array:
        """Where each output and label stands among its like: whole numbers, equal for equal values, shape (n, 2); as
        floats, since they are no classes, of which ``jackknife`` knows what a wrong one costs."""
        if _are_pairs(outputs, labels):
            pairs = _match_pairs(labels)
            outputs, labels = _compare_pairs(outputs, pairs), labels[pairs[:, 0], 1]
        places = (np.unique(values.ravel(), return_inverse=True)[1] for values in (outputs, labels))
        return np.stack(list(places), axis=1).astype(np.float64)

    def units(self, labels: Array) -> Units | None:
        """Each pair, of which nothing but the order depends on others; None where there are none."""
        is_of_pairs = labels.ndim == 2 and labels.shape[1] == 2
        return Units(members=list(_match_pairs(labels)), among=np.array([], dtype=np.intp)) if is_of_pairs else None

    def of_facts(self, facts: Array) -> float:
        """The correlation of the mean ranks; the ranks of a resample are counted, not sorted."""
        ours, theirs = (_centred_ranks(column) for column in facts.T.astype(np.intp))
        norms = np.sqrt(ours @ ours) * np.sqrt(theirs @ theirs)
        return float(ours @ theirs / norms) if norms > 0 else 0.0


def _explain_shape(outputs: Array) -> str:
    return (
        f"outputs have the shape {outputs.shape}; spearman takes one number for each example, or embeddings (n, size) "
        "of the data set pairs, where both texts of a pair are among the examples"
    )


def _are_pairs(outputs: Array, labels: Array | None) -> bool:
    """Whether outputs are embeddings, and labels say which two of them belong together."""
    is_of_pairs = labels is not None and labels.ndim == 2 and labels.shape[1] == 2
    return is_of_pairs and outputs.ndim == 2 and outputs.shape[1] > 1


def _match_pairs(labels: Array) -> Array:
    """Where the two examples of each whole pair stand, shape (pairs, 2), in the order of the first ones."""
    order = np.argsort(labels[:, 0], kind="stable")
    _, first, counts = np.unique(labels[order, 0], return_index=True, return_counts=True)
    first = first[counts == 2]
    pairs: Array = np.stack([order[first], order[first + 1]], axis=1)
    return pairs[np.argsort(pairs[:, 0])]


def _compare_pairs(outputs: Array, pairs: Array) -> Array:
    """The cosine of the two embeddings of each pair."""
    lengths = np.linalg.norm(outputs.astype(np.float64), axis=1, keepdims=True)
    vectors = outputs / np.where(lengths > 0, lengths, 1.0)
    cosines: Array = np.einsum("ij,ij->i", vectors[pairs[:, 0]], vectors[pairs[:, 1]])
    return cosines.round(_DECIMALS)


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
