"""Scores over classes as scikit-learn defines them: each class counts the same however many examples it has (macro),
or one class alone (``recall:3``).

The mean is over the classes that occur in the labels. scikit-learn adds classes that only the predictions name;
then a single stray prediction of one variant would change what is averaged, and two variants would not compare.
Counted here, since a bootstrap asks thousands of times and scikit-learn checks its arguments for a millisecond each.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from qbench.metrics.base import Array, WholeMetric
from qbench.metrics.validation import choose_classes, classes_problem

Score = Literal["f1", "precision", "recall"]


class ClassScore(WholeMetric):
    """A score of classes, of ``only`` one of them or macro. A single output is a logit (``validation.scores``)."""

    def __init__(self, name: str, score: Score, only: int | None = None) -> None:
        self.name = name
        self.score: Score = score
        self.only = only

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why the outputs are not class scores, or have not the one class."""
        problem = classes_problem(outputs, labels, classes)
        if problem or self.only is None:
            return problem
        columns = 2 if outputs[0].size == 1 else outputs.shape[1]
        return f"the model has {columns} classes, 0 to {columns - 1}" if self.only >= columns else None

    def facts(self, outputs: Array, labels: Array) -> Array:
        """The chosen class and the label of each example, shape (n, 2)."""
        return np.stack([choose_classes(outputs), labels], axis=1)

    def of_facts(self, facts: Array) -> float:
        """The score between 0 and 1; a class that is never predicted has precision 0."""
        predicted, labels = facts.T
        count = int(facts.max()) + 1
        right = np.bincount(labels[predicted == labels], minlength=count)
        expected = np.bincount(labels, minlength=count)
        predictions = np.bincount(predicted, minlength=count)
        below = {"f1": (expected + predictions) / 2, "precision": predictions, "recall": expected}[self.score]
        each = right / np.maximum(below, 0.5)
        if self.only is not None:
            return float(each[self.only]) if self.only < count else 0.0
        return float(each[expected > 0].mean())

    def per_example(self, outputs: Array, labels: Array) -> Array | None:
        """Of recalls. Of one class: right or not, for its own examples only. Macro, which is a weighted mean: right or
        not, times n / (classes x examples of that class)."""
        if self.score != "recall":
            return None
        if self.only is not None:
            recalled: Array = (choose_classes(outputs)[labels == self.only] == self.only).astype(np.float64)
            return recalled
        expected = np.bincount(labels)
        weights = len(labels) / (np.count_nonzero(expected) * np.maximum(expected, 1))
        weighted: Array = (choose_classes(outputs) == labels) * weights[labels]
        return weighted


F1 = ClassScore("f1", "f1")
PRECISION = ClassScore("precision", "precision")
RECALL = ClassScore("recall", "recall")
# The mean recall over the classes of the labels, as scikit-learn defines balanced_accuracy_score.
BALANCED_ACCURACY = ClassScore("balanced_accuracy", "recall")


def f1_of(number: str) -> ClassScore:
    """The F1 score of one class: ``f1:3``."""
    return ClassScore(f"f1:{number}", "f1", int(number))


def precision_of(number: str) -> ClassScore:
    """The precision of one class: ``precision:3``."""
    return ClassScore(f"precision:{number}", "precision", int(number))


def recall_of(number: str) -> ClassScore:
    """The recall of one class: ``recall:3``."""
    return ClassScore(f"recall:{number}", "recall", int(number))
