"""Scores of recognized texts: as jiwer counts them, and what is said of what is no text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.evaluate.one_output import score_predictions
from qbench.metrics.texts import CER, WER, count_edits, read_text
from qbench.models.ctc import decode_best_path

jiwer = pytest.importorskip("jiwer", reason="needs jiwer (extra test)")
TEXT = st.text(alphabet="ab cé😀", max_size=12)


def rows(texts: list[str], kind: type = np.int64) -> np.ndarray:
    """Code points, -1 behind the end."""
    points = np.full((len(texts), max(1, *map(len, texts), 1)), -1, dtype=kind)
    for row, text in zip(points, texts, strict=True):
        row[: len(text)] = [ord(letter) for letter in text]
    return points


@given(st.lists(st.tuples(TEXT, TEXT.filter(lambda text: bool(text.split()))), min_size=1, max_size=6))
def test_rates_are_those_of_jiwer(pairs: list[tuple[str, str]]) -> None:
    """Over all texts, to 1e-9; jiwer takes no empty reference, of which a resample has none to divide by."""
    written, references = ([pair[place] for pair in pairs] for place in (0, 1))
    outputs, labels = rows(written, np.float32), rows(references)
    assert CER.value(outputs, labels) == pytest.approx(jiwer.cer(references, written), abs=1e-9)
    assert WER.value(outputs, labels) == pytest.approx(jiwer.wer(references, written), abs=1e-9)
    assert CER.problem(outputs, labels, None) is None
    assert CER.of_facts(np.zeros((2, 2))) == 0.0


@given(TEXT)
def test_a_text_comes_back_from_its_row(text: str) -> None:
    """Whatever stands behind its end."""
    (row,) = rows([text])
    assert read_text(np.concatenate([row, [-1, 65]])) == text


@pytest.mark.parametrize(
    ("written", "reference", "edits"), [("", "", 0), ("", "ab", 2), ("abc", "", 3), ("kitten", "sitting", 3)]
)
def test_edits_are_counted(written: str, reference: str, edits: int) -> None:
    """Insertions, deletions and exchanges."""
    assert count_edits(written, reference) == edits


def test_a_change_has_limits_by_text() -> None:
    """More errors are a larger number, which is worse."""
    assert not CER.higher_is_better
    random = np.random.default_rng(0)
    references = ["".join(random.choice(list("abcdef"), 20)) for _ in range(80)]
    worse = [text if number % 4 else text[:-4] for number, text in enumerate(references)]
    labels = rows(references)
    fp32 = {"outputs": rows(references, np.float32), "labels": labels}
    accuracy = score_predictions(CER, {"outputs": rows(worse, np.float32), "labels": labels}, fp32, None)
    assert accuracy.value == pytest.approx(0.05)
    assert accuracy.delta is not None
    assert accuracy.delta.low is not None
    assert 0 < accuracy.delta.low < 0.05


TEXTS = rows(["ab", "c"])


@pytest.mark.parametrize(
    ("outputs", "labels", "words"),
    [
        (np.zeros((2, 40, 30)), TEXTS, r"a function that returns a list of texts, and give labels as \[ord\(c\)"),
        (TEXTS + 0.5, TEXTS, "outputs are float64"),
        (TEXTS, np.zeros(2, int), "labels are int64 of shape"),
        (TEXTS - 1, TEXTS, "outputs are int64"),
        (np.zeros((2, 0)), TEXTS, r"outputs are float64 of shape \(2, 0\)"),
        (TEXTS, np.full((2, 3), -1), "all texts of the labels are empty"),
        (TEXTS, None, "the data set has no labels"),
        (TEXTS, TEXTS[:1], "2 outputs for 1 labels"),
    ],
)
def test_what_is_no_text_is_told(outputs: Any, labels: Any, words: str) -> None:
    """With what to write."""
    assert re.search(words, str(CER.problem(outputs, labels, None)))


def test_the_best_path_leaves_out_blanks_and_repeats() -> None:
    """Of each step the best letter; a blank between two of one letter keeps both."""
    steps = [[0, 1, 1, 0, 1, 2, 2], [2, 2, 0, 0, 0, 0, 0]]
    scores = np.eye(3)[np.array(steps)]
    assert decode_best_path(scores, "ab") == ["aab", "b"]
    assert decode_best_path(np.eye(3)[np.array([[2, 0, 0, 2, 1]])], "ab", blank=2) == ["ab"]
    with pytest.raises(ValueError, match="3 scores a step, and 3 letters beside the blank"):
        decode_best_path(scores, "abc")
