"""Which boxes are of which objects, as COCO's evaluation matches them; pure."""

from __future__ import annotations

import numpy as np

from qbench.metrics.base import Array

COLUMNS = 6  # of outputs and of labels
SCORE, CLASS = 4, 5  # columns of an output


def match_boxes(boxes: Array, objects: Array, crowd: Array, overlaps: Array) -> tuple[Array, Array]:
    """Which of the boxes (best first) take an object, and which take a crowd and do not count, shape (boxes, overlaps).

    Each box takes the object with which it overlaps most, of those that none before it took; a crowd, which comes
    behind the objects, may be taken often, and only where no object is.
    """
    right = np.zeros((len(boxes), len(overlaps)), dtype=bool)
    ignored = np.zeros_like(right)
    if not len(objects):
        return right, ignored
    shares = measure_overlaps(boxes, objects, crowd)
    for place, overlap in enumerate(overlaps):
        taken = np.zeros(len(objects), dtype=bool)
        for box, share in enumerate(shares):
            for group in (~crowd, crowd):
                free = group & (~taken | crowd) & (share >= overlap)
                if free.any():
                    best = len(share) - 1 - int(np.argmax(np.where(free, share, -1.0)[::-1]))  # the last of equal ones
                    taken[best] = True
                    right[box, place], ignored[box, place] = not crowd[best], crowd[best]
                    break
    return right, ignored


def measure_overlaps(boxes: Array, objects: Array, crowd: Array) -> Array:
    """Intersection over union of each box with each object, shape (boxes, objects); with a crowd over the box alone."""
    low = np.maximum(boxes[:, None, :2], objects[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], objects[None, :, 2:])
    common = np.maximum(high - low, 0).prod(axis=2)
    areas = [(group[:, 2:] - group[:, :2]).prod(axis=1) for group in (boxes, objects)]
    union: Array = np.where(crowd[None, :], areas[0][:, None], areas[0][:, None] + areas[1][None, :] - common)
    shares: Array = common / np.where(union > 0, union, np.inf)
    return shares
