"""Texts as rows of Unicode code points, -1 behind the end of each, and the edits between two of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from qbench.metrics.base import Array

_HIGHEST = 0x10FFFF  # of Unicode


def are_texts(rows: Array) -> bool:
    """Whether an array can be texts: (n, longest) whole numbers from -1 to the last code point."""
    if rows.ndim != 2 or not rows.size:
        return False
    return bool((rows == np.round(rows)).all() and rows.min() >= -1 and rows.max() <= _HIGHEST)


def read_text(codes: Array) -> str:
    """The text of a row of code points, up to the first -1."""
    end = np.flatnonzero(codes < 0)
    return "".join(chr(int(code)) for code in codes[: end[0] if len(end) else None])


def count_edits(written: Sequence[Hashable], reference: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and exchanges that make one of the other (Levenshtein 1966)."""
    numbers = {item: number for number, item in enumerate(dict.fromkeys((*written, *reference)))}
    ours, theirs = (np.array([numbers[item] for item in items]) for items in (written, reference))
    places = np.arange(len(theirs) + 1)
    row = places.copy()
    for count, item in enumerate(ours, 1):
        best = np.concatenate([[count], np.minimum(row[1:] + 1, row[:-1] + (theirs != item))])
        row = np.minimum.accumulate(best - places) + places  # insertions, from the left to the right
    return int(row[-1])
