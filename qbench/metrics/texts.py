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
from qbench.metrics.text_rows import are_texts, count_edits, read_text
from qbench.metrics.validation import numbers_problem


class ErrorRate(WholeMetric):
    """``cer`` or ``wer``; a share that may be above 1, where more was written than stands there."""

    higher_is_better = False

    def __init__(self, name: Literal["cer", "wer"]) -> None:
        self.name = name

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why outputs or labels are no texts."""
        problem = numbers_problem(outputs, labels)
        if problem or labels is None:
            return problem
        for what, rows in (("outputs are", outputs), ("labels are", labels)):
            if not are_texts(rows):
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


CER = ErrorRate("cer")
WER = ErrorRate("wer")
