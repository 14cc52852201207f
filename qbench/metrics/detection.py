"""Scores of boxes: ``map`` is COCO's mean average precision (at overlaps of 0.5 to 0.95, of all sizes, the 100 best
boxes of an image and class), ``ap50`` that at an overlap of 0.5.

Outputs are boxes (n, m, 6), rows ``x1, y1, x2, y2, score, class``, as many networks that end in a suppression give them
and as ``postprocess`` in a suite returns them; labels are boxes as ``datasets.boxes`` has them. Rows of class -1 are no
boxes. The boxes of an image are matched without a look at other images, so that a score of any of them follows from
each one's matches: what the interval needs. The values are those of pycocotools and faster-coco-eval, of which the
faster gives no matches of an image to Python.

Source: Lin et al., "Microsoft COCO: Common Objects in Context" (2014), arXiv:1405.0312, and its evaluation's code.
"""

from __future__ import annotations

import numpy as np

from qbench.metrics.base import Array, WholeMetric
from qbench.metrics.box_overlaps import CLASS, COLUMNS, SCORE, match_boxes
from qbench.metrics.validation import numbers_problem

OVERLAPS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0.0, 1.0, 101)
MOST_BOXES = 100  # of an image and class, the best ones
# Precision at 101 recalls moves in steps. Of 50 to 300 scenes of one class or three, limits by 20 parts held the
# change in 95 to 100 %, and at the margin at most 5 % passed; those by images were erratic (stats.jackknife).
GROUPS = 20
_LABEL_CLASS, _CROWD = 4, 5  # columns of a label
# What a row of facts holds: a box's class, score, and the overlaps at which it is right or does not count, as bits; or
# of class k, as -2 - k, how many objects of it the image has.
_FACTS = 4
_FIRST_COUNT = -2


class BoxScore(WholeMetric):
    """Average precision, the mean over ``overlaps`` and over the classes that the labels hold."""

    groups = GROUPS

    def __init__(self, name: str, overlaps: Array) -> None:
        self.name, self._overlaps = name, overlaps

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs are no boxes with scores, or labels no boxes."""
        problem = numbers_problem(outputs, labels)
        if problem or labels is None:
            return problem
        if outputs.ndim != 3 or outputs.shape[2] != COLUMNS:
            return (
                f"outputs have the shape {outputs.shape}; {self.name} takes boxes (n, boxes, {COLUMNS}): x1, y1, x2, "
                "y2, score, class; write `postprocess: {python: file.py:function}` beside the model, a function that "
                "makes such rows of the network's outputs"
            )
        if labels.ndim != 3 or labels.shape[2] != COLUMNS or labels.dtype.kind != "f":
            return (
                f"labels are {labels.dtype} of shape {labels.shape}; {self.name} takes boxes (n, boxes, {COLUMNS}): "
                "x1, y1, x2, y2, class, crowd, as the data sets coco and shapes give them"
            )
        if not (_are_counted(labels)).any():
            return "no image has a box; evaluate on some that have"
        chosen = outputs[..., CLASS]
        odd = chosen[(chosen != np.round(chosen)) | (chosen >= (np.inf if classes is None else classes))]
        if odd.size:
            limit = "" if classes is None else f", 0 to {classes - 1}"
            return f"a box has the class {odd[0]:g}; expected whole numbers{limit} (-1: no box)"
        return None

    def facts(self, outputs: Array, labels: Array) -> Array:
        """What each image's boxes match, shape (n, rows, 4), as many rows as the image that needs most."""
        matches = [self._match_image(*pair) for pair in zip(outputs, labels, strict=True)]
        rows = np.full((len(matches), max(map(len, matches)), _FACTS), -1.0)
        for image, facts in zip(rows, matches, strict=True):
            image[: len(facts)] = facts
        return rows

    def _match_image(self, outputs: Array, labels: Array) -> Array:
        parts = [np.empty((0, _FACTS))]
        for number in np.unique(np.concatenate([outputs[:, CLASS], labels[:, _LABEL_CLASS]])):
            if number < 0:
                continue
            boxes = outputs[outputs[:, CLASS] == number]
            boxes = boxes[np.argsort(-boxes[:, SCORE], kind="stable")][:MOST_BOXES].astype(np.float64)
            objects = labels[labels[:, _LABEL_CLASS] == number].astype(np.float64)
            objects = objects[np.argsort(objects[:, _CROWD], kind="stable")]
            right, ignored = match_boxes(boxes[:, :4], objects[:, :4], objects[:, _CROWD] > 0, self._overlaps)
            bits = 2.0 ** np.arange(len(self._overlaps))
            parts.append(np.stack([np.full(len(boxes), number), boxes[:, SCORE], right @ bits, ignored @ bits], axis=1))
            if count := int((objects[:, _CROWD] == 0).sum()):
                parts.append(np.array([[_FIRST_COUNT - number, 0.0, count, 0.0]]))
        return np.concatenate(parts)

    def of_facts(self, facts: Array) -> float:
        """The score between 0 and 1; 0 where no image has an object (in a resample)."""
        rows = facts.reshape(-1, _FACTS)
        counts = rows[rows[:, 0] <= _FIRST_COUNT]
        precisions = [
            self._average_precision(rows[rows[:, 0] == _FIRST_COUNT - key], counts[counts[:, 0] == key, 2].sum())
            for key in np.unique(counts[:, 0])
        ]
        return float(np.mean(precisions)) if precisions else 0.0

    def _average_precision(self, boxes: Array, objects: float) -> float:
        """Of one class: the mean over overlaps of the highest precision at each of 101 recalls. The recall grows, and a
        precision is highest, only where a box is right."""
        boxes = boxes[np.argsort(-boxes[:, 1], kind="stable")]
        right, ignored = (boxes[:, column].astype(np.int64) for column in (2, 3))
        total = 0.0
        for place in range(len(self._overlaps)):
            counted = right if not ignored.any() else right[ignored >> place & 1 == 0]
            at = np.flatnonzero(counted >> place & 1)
            hits = np.arange(1, len(at) + 1)
            precision = np.maximum.accumulate((hits / (at + 1))[::-1])[::-1]
            reached = np.searchsorted(hits / objects, RECALLS, side="left")
            total += np.concatenate([precision, [0.0]])[reached].mean()
        return float(total) / len(self._overlaps)


def _are_counted(labels: Array) -> Array:
    counted: Array = (labels[..., _LABEL_CLASS] >= 0) & (labels[..., _CROWD] == 0)
    return counted


MAP = BoxScore("map", OVERLAPS)
AP50 = BoxScore("ap50", OVERLAPS[:1])
