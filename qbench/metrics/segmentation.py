"""Scores of masks: outputs (n, classes, height, width), labels (n, height, width) with a class for each pixel, -1 where
nobody says. One channel is the logit of class 1 of two.

The intersection over union is counted over all images and its mean taken over the classes that the labels hold, as
torchmetrics' ``JaccardIndex`` and Pascal VOC do it; a class that no label holds is left out, as in ``classes``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from qbench.metrics.base import Array, WholeMetric
from qbench.metrics.validation import numbers_problem

UNKNOWN = -1  # the label of a pixel of which nobody says what it is


class MaskScore(WholeMetric):
    """``miou`` or ``pixel_accuracy``, the share of the pixels that get their class."""

    def __init__(self, name: Literal["miou", "pixel_accuracy"]) -> None:
        self.name = name

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs are no scores of classes for each pixel of the labels."""
        problem = numbers_problem(outputs, labels)
        if problem or labels is None:
            return problem
        if outputs.ndim != 4 or labels.ndim != 3 or labels.dtype.kind not in "iu":
            return (
                f"outputs have the shape {outputs.shape}, labels are {labels.dtype} of shape {labels.shape}; "
                f"{self.name} takes scores (n, classes, height, width) and whole numbers (n, height, width), a class "
                "for each pixel"
            )
        if outputs.shape[2:] != labels.shape[1:]:
            return (
                f"outputs are of {len(outputs)} x {outputs.shape[2]} x {outputs.shape[3]} pixels, labels of "
                f"{' x '.join(map(str, labels.shape))}; scale the network's outputs to the size of its masks "
                "(torch.nn.functional.interpolate in its forward)"
            )
        columns = _count_classes(outputs)
        if classes is not None and columns != classes:
            return f"the model has {columns} classes for each pixel, the data set {classes}"
        if int(labels.max(initial=UNKNOWN)) >= columns or int(labels.min(initial=0)) < UNKNOWN:
            worst = int(labels.max()) if int(labels.max()) >= columns else int(labels.min())
            return f"a mask holds the class {worst}; the model has {columns}, 0 to {columns - 1} (-1: nobody says)"
        if not (labels != UNKNOWN).any():
            return "no pixel of the masks has a class"
        return None

    def facts(self, outputs: Array, labels: Array) -> Array:
        """Pixels of each image, by class: right, chosen, labelled; shape (n, 3, classes)."""
        columns = _count_classes(outputs)
        rows = np.zeros((len(outputs), 3, columns))
        for counts, scores, mask in zip(rows, outputs, labels, strict=True):
            known = mask != UNKNOWN
            chosen, label = _choose(scores)[known], mask[known]
            for place, values in enumerate((label[chosen == label], chosen, label)):
                counts[place] = np.bincount(values, minlength=columns)
        return rows

    def of_facts(self, facts: Array) -> float:
        """The score between 0 and 1; 0 where no pixel has a class (in a resample)."""
        right, chosen, labelled = facts.sum(axis=0)
        if self.name == "pixel_accuracy":
            return float(right.sum() / max(labelled.sum(), 1.0))
        present = labelled > 0
        union = (chosen + labelled - right)[present]
        return float((right[present] / union).mean()) if present.any() else 0.0


def _count_classes(outputs: Array) -> int:
    return 2 if outputs.shape[1] == 1 else int(outputs.shape[1])


def _choose(scores: Array) -> Array:
    """The class of each pixel of an image: the highest, the lower one at a tie."""
    chosen: Array = (scores[0] > 0).astype(np.int64) if len(scores) == 1 else scores.argmax(axis=0)
    return chosen


MIOU = MaskScore("miou")
PIXEL_ACCURACY = MaskScore("pixel_accuracy")
