"""Non-maximum suppression: of boxes of one class that overlap the best, as a detector's answers are read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
CANDIDATES = 30_000  # of one image: far more than are kept, and few enough for one row of overlaps


def suppress_overlaps(
    boxes: Array, scores: Array, *, least_score: float = 0.01, overlap: float = 0.6, most: int = 100
) -> Array:
    """Rows ``x1, y1, x2, y2, score, class`` of one image, the best first, float32 (m, 6), at most ``most``.

    ``boxes`` are (cells, 4) corners, ``scores`` (cells, classes). A box of a class goes where a better one of that
    class shares more than ``overlap`` of their union; scores below ``least_score`` are not looked at. Of the others
    the best ``CANDIDATES`` are: a network without training, or a broken one, makes one of every cell and class.
    """
    cells, classes = np.nonzero(scores >= least_score)
    values = scores[cells, classes]
    order = np.argsort(-values, kind="stable")[:CANDIDATES]
    cells, classes, values = cells[order], classes[order], values[order]
    corners = boxes[cells]
    areas = np.maximum(corners[:, 2:] - corners[:, :2], 0).prod(axis=1)
    kept = list[int]()
    left = np.arange(len(values))
    while left.size and len(kept) < most:
        best, left = left[0], left[1:]
        kept.append(int(best))
        low, high = np.maximum(corners[best, :2], corners[left, :2]), np.minimum(corners[best, 2:], corners[left, 2:])
        common = np.maximum(high - low, 0).prod(axis=1)
        crowded = common > overlap * (areas[best] + areas[left] - common)
        left = left[~(crowded & (classes[left] == classes[best]))]
    chosen = np.array(kept, dtype=np.intp)
    rows = np.concatenate([corners[chosen], values[chosen, None], classes[chosen, None]], axis=1)
    return rows.astype(np.float32)
