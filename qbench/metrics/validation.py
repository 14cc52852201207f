"""What metrics ask of outputs and labels, in one place; each answer names what to do."""

from __future__ import annotations

import numpy as np

from qbench.metrics.base import Array
from qbench.stats.interval_type import LARGEST

SHOWN = 5
NO_LABELS = (
    "the data set has no labels, which the metric needs; evaluate on a split that has them, or choose a metric against "
    "fp32's outputs: top1_agreement, cosine, sqnr, kl"
)


def outputs_problem(outputs: Array) -> str | None:
    """Why outputs are not finite numbers, one row per example; None if they are."""
    if outputs.ndim == 0:
        return "the model gave one number for all examples; its first axis must be the example"
    if len(outputs) == 0:
        return "there are no examples"
    bad = np.flatnonzero(~np.isfinite(outputs).reshape(len(outputs), -1).all(axis=1))
    if bad.size:
        first = ", ".join(map(str, bad[:SHOWN]))
        return f"{bad.size} of {len(outputs)} outputs are NaN or infinite, first at examples {first}"
    return None


def numbers_problem(outputs: Array, labels: Array | None) -> str | None:
    """Why outputs and labels are not comparable numbers, one row per example; None if they are."""
    if labels is None:
        return NO_LABELS
    rows = len(outputs) if outputs.ndim else 1
    if rows != len(labels):
        return f"the model gave {rows} outputs for {len(labels)} labels; its first axis must be the example"
    return outputs_problem(outputs)


def classes_problem(outputs: Array, labels: Array | None, classes: int | None) -> str | None:
    """Why these are not class scores of shape (n, classes) with whole labels; None if they are.

    One output per example, shape (n,) or (n, 1), is taken as the logit of class 1 of two (``read_scores``). Outputs
    that all lie between 0 and 1 look like probabilities, for which that threshold is wrong, and are refused.
    """
    problem = numbers_problem(outputs, labels) or scores_problem(outputs, classes)
    if problem or labels is None:
        return problem
    return _labels_problem(labels, 2 if outputs[0].size == 1 else outputs.shape[1])


def scores_problem(outputs: Array, classes: int | None) -> str | None:
    """Why these are not class scores, labels apart; None if they are."""
    if outputs.ndim > 2 or outputs[0].size == 0:
        masks = "; for a class of each pixel choose miou or pixel_accuracy" if outputs.ndim == 4 else ""
        return f"outputs have the shape {outputs.shape}; expected (n, classes){masks}"
    single = outputs[0].size == 1
    columns = 2 if single else outputs.shape[1]
    if classes is not None and columns != classes:
        return f"outputs have the shape {outputs.shape}, but the data set has {classes} classes"
    if single and outputs.min() >= 0 and outputs.max() <= 1:
        return (
            "one output per example, all between 0 and 1: probabilities? One output is taken as a logit "
            "(class 1 if above 0); return the logit, or one column per class"
        )
    return None


def _labels_problem(labels: Array, columns: int) -> str | None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        if _is_one_hot(labels):
            return (
                f"labels are one-hot, of shape {labels.shape}; give the number of each example's class: "
                "`labels.argmax(axis=1)`"
            )
        return (
            f"labels are {labels.dtype} of shape {labels.shape}; expected one whole number per example (for numbers to "
            "be met choose mae, rmse, r2 or spearman)"
        )
    outside = (labels < 0) | (labels >= columns)
    if outside.any():
        value = int(labels[outside][0])
        return f"{outside.sum()} labels are outside the model's {columns} classes 0 to {columns - 1}, first: {value}"
    return None


def _is_one_hot(labels: Array) -> bool:
    """Whether each example has a column for every class, with a one in that of its own."""
    if labels.ndim != 2 or labels.shape[1] < 2 or labels.dtype.kind not in "biuf":
        return False
    return bool(((labels == 0) | (labels == 1)).all() and (labels.sum(axis=1) == 1).all())


def find_no_score(values: Array | float) -> str | None:
    """Which of these numbers, one for each example or one for all, can be no score, and why; None if all can."""
    numbers = np.asarray(values, dtype=np.float64)
    bad = np.flatnonzero(~(np.abs(np.atleast_1d(numbers)) <= LARGEST))
    if not bad.size:
        return None
    first = float(np.atleast_1d(numbers)[bad[0]])
    where = f" for example {bad[0]}" if numbers.ndim else ""
    more = f", and no score for {bad.size - 1:,} more" if bad.size > 1 else ""
    return f"{first:g}{where}{more}; a score must be a finite number, at most {LARGEST:g} either way"


def read_scores(outputs: Array) -> Array:
    """Outputs as (n, classes); one logit z becomes the columns 0 and z, so that class 1 wins above 0."""
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        return outputs
    logit = outputs.reshape(len(outputs))
    return np.stack([np.zeros_like(logit), logit], axis=1)


def choose_classes(outputs: Array) -> Array:
    """The class that each example's scores choose, shape (n,): the highest, the lower one at a tie."""
    classes: Array = read_scores(outputs).argmax(axis=1)
    return classes
