"""Rules of metrics/text_rows.py: which numbers can be letters, and where a text ends."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.metrics.text_rows import are_texts, read_text


@pytest.mark.parametrize(
    ("rows", "are"),
    [
        (np.array([[97, -1], [0, 0x10FFFF]]), True),
        (np.array([[97.0, -1.0]]), True),
        (np.array([[0x110000]]), False),
        (np.array([[-2]]), False),
        (np.array([[97.5]]), False),
        (np.array([97, 98]), False),
        (np.zeros((2, 0)), False),
        (np.zeros((0, 2)), False),
    ],
)
def test_texts_are_rows_of_unicode(rows: np.ndarray, are: bool) -> None:
    """Whole numbers from -1, behind the end, to the last code point; of no number nothing can be told."""
    assert are_texts(rows) is are


def test_a_text_ends_at_the_first_number_that_is_no_letter() -> None:
    """The code point 0 is one."""
    assert read_text(np.array([97, 0, 98, -1, 99])) == "a\0b"
    assert read_text(np.array([97, 98])) == "ab"
    assert read_text(np.array([-1, 98])) == ""
