"""Scores of recognized texts: ``cer`` and ``wer``, edits over the characters, or words, of the references.

Outputs and labels are rows of Unicode code points, (n, longest text), -1 behind the end of a text; a ``postprocess``
may return the texts themselves. The edits of all texts are summed and divided by the length of all references, as jiwer
does it, without white space at either end; the unit of the limits is the text. Words are what white space parts.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np

from qbench.metrics.base import Array, WholeMetric
from qbench.metrics.validation import NO_LABELS, numbers_problem

_HIGHEST = 0x10FFFF  # of Unicode


class ErrorRate(WholeMetric):
    """``cer`` or ``wer``; a share that may be above 1, where more was written than stands there."""

    higher_is_better = False

    def __init__(self, name: Literal["cer", "wer"]) -> None:
        self.name = name

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs or labels are no texts."""
        if labels is None:
            return NO_LABELS
        if problem := numbers_problem(outputs, labels):
            return problem
        for what, rows in (("outputs are", outputs), ("labels are", labels)):
            if rows.ndim != 2 or (rows != np.round(rows)).any() or rows.min() < -1 or rows.max() > _HIGHEST:
                return (
                    f"{what} {rows.dtype} of shape {rows.shape}; {self.name} takes texts as rows of Unicode code "
                    "points (n, length), -1 behind the end: write `postprocess: {python: file.py:function}` beside "
                    "the model, a function that returns a list of texts, and give labels as [ord(c) for c in text]"
                )
        if not (labels >= 0).any():
            return "all texts of the labels are empty"
        return None

    def facts(self, outputs: Array, labels: Array) -> Array:
        """Of each text how many edits it takes, and how long its reference is; shape (n, 2)."""
        rows = np.zeros((len(outputs), 2))
        for row, output, label in zip(rows, outputs, labels, strict=True):
            written, reference = (self._split(read_text(text).strip()) for text in (output, label))
            row[:] = count_edits(written, reference), len(reference)
        return rows

    def of_facts(self, facts: Array) -> float:
        """Edits over lengths; 0 where all references are empty (in a resample)."""
        edits, length = facts.sum(axis=0)
        return float(edits / length) if length else 0.0

    def _split(self, text: str) -> Sequence[Hashable]:
        return text.split() if self.name == "wer" else text


def read_text(codes: Array) -> str:
    """The text of a row of code points, up to the first -1."""
    end = np.flatnonzero(codes < 0)
    return "".join(chr(int(code)) for code in codes[: end[0] if len(end) else None])


def count_edits(written: Sequence[Hashable], reference: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and exchanges that make one of the other (Levenshtein 1966)."""
    if not reference or not written:
        return max(len(reference), len(written))
    numbers = {item: number for number, item in enumerate(dict.fromkeys((*written, *reference)))}
    ours, theirs = (np.array([numbers[item] for item in items]) for items in (written, reference))
    places = np.arange(len(theirs) + 1)
    row = places.copy()
    for count, item in enumerate(ours, 1):
        best = np.concatenate([[count], np.minimum(row[1:] + 1, row[:-1] + (theirs != item))])
        row = np.minimum.accumulate(best - places) + places  # insertions, from the left to the right
    return int(row[-1])


CER = ErrorRate("cer")
WER = ErrorRate("wer")
