"""Scores over classes as scikit-learn defines them: each class counts the same however many examples it has (macro).

The mean is over the classes that occur in the labels. scikit-learn adds classes that only the predictions name;
then a single stray prediction of one variant would change what is averaged, and two variants would not compare.
Counted here, since a bootstrap asks thousands of times and scikit-learn checks its arguments for a millisecond each.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from qbench.metrics.base import Array, Metric
from qbench.metrics.check import classes_problem, scores


class ClassScore(Metric):
    """A macro score. A single output is a logit (``check.scores``)."""

    def __init__(self, name: str, score: Literal["f1", "precision", "recall"]) -> None:
        self.name = name
        self.score = score

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why the outputs are not class scores."""
        return classes_problem(outputs, labels, classes)

    def value(self, outputs: Array, labels: Array) -> float:
        """The score between 0 and 1; a class that is never predicted has precision 0."""
        predicted = scores(outputs).argmax(axis=1)
        classes, of_label = np.unique(labels, return_inverse=True)
        count = len(classes)
        found = np.minimum(np.searchsorted(classes, predicted), count - 1)
        found = np.where(classes[found] == predicted, found, count)
        right = np.bincount(of_label[found == of_label], minlength=count)
        expected = np.bincount(of_label, minlength=count)
        named = np.bincount(found, minlength=count + 1)[:count]
        below = {"f1": (expected + named) / 2, "precision": named, "recall": expected}[self.score]
        return float(np.mean(right / np.maximum(below, 0.5)))


F1 = ClassScore("f1", "f1")
PRECISION = ClassScore("precision", "precision")
RECALL = ClassScore("recall", "recall")
# The mean recall over the classes of the labels, as scikit-learn defines balanced_accuracy_score.
BALANCED_ACCURACY = ClassScore("balanced_accuracy", "recall")
