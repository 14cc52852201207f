"""The ends of a batch, and what is no number in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# 256 KB of float32: stays in the second-level cache from one pass to the next.
CHUNK = 1 << 16


def find_extremes(values: Array) -> tuple[Array, float, float]:
    """The batch as one row of float32 with its least and greatest value; (inf, -inf) for an empty one.

    Raises ``ValueError`` for inf and NaN (also where float32 cannot hold a float64), with their number.
    """
    with np.errstate(over="ignore"):
        row: Array = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    low, high = np.float32(np.inf), np.float32(-np.inf)
    for start in range(0, row.size, CHUNK):
        chunk = row[start : start + CHUNK]
        low, high = np.minimum(low, chunk.min()), np.maximum(high, chunk.max())  # both keep a NaN
    if row.size and not (np.isfinite(low) and np.isfinite(high)):
        wrong = int(row.size - np.count_nonzero(np.isfinite(row)))
        raise ValueError(f"{wrong} value{' is' if wrong == 1 else 's are'} NaN or inf")
    return row, float(low), float(high)
