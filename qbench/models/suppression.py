"""Non-maximum suppression: of boxes of one class that overlap the best, as a detector's answers are read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def suppress_overlaps(
    boxes: Array, scores: Array, *, least_score: float = 0.01, overlap: float = 0.6, most: int = 100
) -> Array:
    """Rows ``x1, y1, x2, y2, score, class`` of one image, the best first, float32 (m, 6), at most ``most``.

    ``boxes`` are (cells, 4) corners, ``scores`` (cells, classes). A box of a class goes where a better one of that
    class shares more than ``overlap`` of their union; scores below ``least_score`` are not looked at.
    """
    cells, classes = np.nonzero(scores >= least_score)
    values = scores[cells, classes]
    order = np.argsort(-values, kind="stable")
    cells, classes, values = cells[order], classes[order], values[order]
    corners = boxes[cells]
    low = np.maximum(corners[:, None, :2], corners[None, :, :2])
    high = np.minimum(corners[:, None, 2:], corners[None, :, 2:])
    common = np.maximum(high - low, 0).prod(axis=2)
    areas = np.maximum(corners[:, 2:] - corners[:, :2], 0).prod(axis=1)
    crowded = (common > overlap * (areas[:, None] + areas[None, :] - common)) & (classes[:, None] == classes[None, :])
    kept = list[int]()
    gone = np.zeros(len(values), dtype=bool)
    for place in range(len(values)):
        if not gone[place]:
            kept.append(place)
            gone |= crowded[place]
    chosen = np.array(kept[:most], dtype=np.intp)
    rows = np.concatenate([corners[chosen], values[chosen, None], classes[chosen, None]], axis=1)
    return rows.astype(np.float32)
