"""The letters that a recognizer can write, and the texts that hold others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import first_names
from qbench.metrics.text_rows import are_texts, read_text

SHOWN = 8


def describe_unknown_letters(alphabet: Iterable[str], labels: NDArray[Any] | None, ids: Sequence[str]) -> str | None:
    """That some labels are texts which nothing of this alphabet can be, with their letters and the first example; None
    where there are none, or where labels are no texts. White space is not counted."""
    if labels is None or labels.dtype.kind not in "iu" or not are_texts(labels):
        return None
    letters = {letter for entry in alphabet for letter in entry}
    codes = [code for code in np.unique(labels) if code >= 0 and chr(code) not in letters and not chr(code).isspace()]
    concerned = np.flatnonzero(np.isin(labels, codes).any(axis=1))
    if not len(concerned):
        return None
    unknown = first_names((repr(chr(code)) for code in codes), SHOWN)
    first = int(concerned[0])
    return (
        f"{len(concerned)} of {len(labels)} texts hold characters that it cannot write: {unknown} (first in "
        f"{ids[first]}, {read_text(labels[first])!r}); they count as errors of fp32 and of int8 alike"
    )
