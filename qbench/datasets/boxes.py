"""Boxes as labels: rows of numbers, filled up so that every image has as many.

A label is a row ``x1, y1, x2, y2, class, crowd`` in pixels of what the network is given; ``crowd`` is 1 for a region of
many objects that are not told apart (COCO's ``iscrowd``), else 0. A row of -1 alone is no box.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qbench.datasets.base import Array

COLUMNS = 6
CLASS, CROWD = 4, 5
NO_BOX = np.full((1, COLUMNS), -1, dtype=np.float32)


def join_boxes(rows: Sequence[Array]) -> Array:
    """float32 (n, most boxes of an image, 6) of the boxes (m, 6) of each image."""
    most = max(1, max(map(len, rows), default=1))
    labels: Array = np.repeat(np.repeat(NO_BOX[None], len(rows), axis=0), most, axis=1)
    for image, boxes in zip(labels, rows, strict=True):
        image[: len(boxes)] = boxes
    return labels


def are_boxes(labels: Array) -> bool:
    """Whether labels are boxes as ``join_boxes`` gives them."""
    return labels.ndim == 3 and labels.shape[2] == COLUMNS and labels.dtype.kind == "f"
