"""Texts of scores for each letter and step, as recognizers trained by CTC give them; for a ``postprocess``.

Source: Graves et al., "Connectionist Temporal Classification" (2006), ICML, best path decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def decode_best_path(scores: NDArray[Any], alphabet: Sequence[str], *, blank: int = 0) -> list[str]:
    """The text of each example of scores (n, steps, letters): the best letter of each step, those that repeat once,
    blanks left out. ``alphabet`` names the letter of each place but the ``blank``'s, in their order."""
    letters = [*alphabet[:blank], "", *alphabet[blank:]]
    if len(letters) != scores.shape[-1]:
        raise ValueError(f"{scores.shape[-1]} scores a step, and {len(alphabet)} letters beside the blank")
    texts = []
    for best in scores.argmax(axis=-1):
        kept = best[np.concatenate([[True], best[1:] != best[:-1]])]
        texts.append("".join(letters[int(place)] for place in kept))
    return texts
