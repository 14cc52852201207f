"""Scores over classes, from scikit-learn: each class counts the same however many examples it has (macro).

The mean is over the classes that occur in the labels. scikit-learn adds classes that only the predictions name;
then a single stray prediction of one variant would change what is averaged, and two variants would not compare.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from qbench.metrics.base import Array, Metric
from qbench.metrics.check import classes_problem, scores


class ClassScore(Metric):
    """One of scikit-learn's macro scores. A single output is a logit (``check.scores``)."""

    def __init__(self, name: str, score: Literal["f1", "precision", "recall"]) -> None:
        self.name = name
        self.score = score

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why the outputs are not class scores."""
        return classes_problem(outputs, labels, classes)

    def value(self, outputs: Array, labels: Array) -> float:
        """The score between 0 and 1; a class that is never predicted has precision 0."""
        from sklearn.metrics import f1_score, precision_score, recall_score

        function = {"f1": f1_score, "precision": precision_score, "recall": recall_score}[self.score]
        predicted = scores(outputs).argmax(axis=1)
        return float(function(labels, predicted, labels=np.unique(labels), average="macro", zero_division=0.0))


F1 = ClassScore("f1", "f1")
PRECISION = ClassScore("precision", "precision")
RECALL = ClassScore("recall", "recall")
# The mean recall over the classes of the labels, as scikit-learn defines balanced_accuracy_score.
BALANCED_ACCURACY = ClassScore("balanced_accuracy", "recall")
