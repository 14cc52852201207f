"""Texts of scores for each letter and step, as recognizers trained by CTC give them; for a ``postprocess``:

    from qbench.models.ctc import BestPath, read_alphabet

    decode = BestPath(read_alphabet("recognizer.onnx"))

Source: Graves et al., "Connectionist Temporal Classification" (2006), ICML, best path decoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class BestPath:
    """Called with scores (n, steps, letters) it returns the text of each example. ``alphabet`` names the letter of each
    place but the ``blank``'s, in their order; qbench warns of texts with other letters."""

    def __init__(self, alphabet: Sequence[str], *, blank: int = 0) -> None:
        self.alphabet = tuple(alphabet)
        self._blank = blank

    def __call__(self, scores: NDArray[Any]) -> list[str]:
        """``decode_best_path`` of these scores."""
        return decode_best_path(scores, self.alphabet, blank=self._blank)


def read_alphabet(file: Path | str) -> tuple[str, ...]:
    """The letters of a recognizer of PaddleOCR's that rapidocr made an ONNX file of: those of the file's own list
    ``character``, one a line, and a space behind them. Raises ``ValueError`` where it has no such list."""
    import onnx

    alphabet = find_alphabet(onnx.load(str(file), load_external_data=False))
    if alphabet is None:
        raise ValueError(f"{file}: it holds no list 'character' of its letters; give them as a list")
    return alphabet


def find_alphabet(model: Any) -> tuple[str, ...] | None:
    """The letters that a ``ModelProto`` lists, as ``read_alphabet`` has them; None where it lists none."""
    characters = next((item.value for item in model.metadata_props if item.key == "character"), None)
    return None if characters is None else (*characters.split("\n"), " ")


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
