"""Texts as labels: rows of Unicode code points, filled up so that every example has as many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qbench.datasets.base import Array


def join_texts(texts: Sequence[str], longest: int = 1) -> Array:
    """int64 (n, length of the longest text, or ``longest`` where that is more); -1 stands behind the end of a text."""
    labels: Array = np.full((len(texts), max([longest, *map(len, texts)])), -1, dtype=np.int64)
    for row, text in zip(labels, texts, strict=True):
        row[: len(text)] = [ord(letter) for letter in text]
    return labels
