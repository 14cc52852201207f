"""Texts that a recognizer cannot write: which, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from qbench.datasets.text_labels import join_texts
from qbench.errors import EvaluateError
from qbench.models.alphabet import describe_unknown_letters
from qbench.models.ctc import BestPath, decode_best_path, read_alphabet
from qbench.models.postprocess import Postprocess

IDS = ("a.png", "b.png", "c.png")


def test_texts_with_other_letters_are_counted_and_the_first_named() -> None:
    """By their characters; white space is not one of them."""
    labels = join_texts(["ab c", "naïve ß", "ß"])
    assert describe_unknown_letters("abcdenv", labels, IDS) == (
        "2 of 3 texts hold characters that it cannot write: 'ß', 'ï' (first in b.png, 'naïve ß'); they count as errors "
        "of fp32 and of int8 alike"
    )
    assert describe_unknown_letters("abcdenvßï", labels, IDS) is None
    assert "'\\x07'" in str(describe_unknown_letters("a", join_texts(["a\x07"]), IDS))


@pytest.mark.parametrize("labels", [None, np.zeros(3, int), np.zeros((3, 2)), np.full((3, 2), -2)])
def test_labels_that_are_no_texts_are_left_alone(labels: np.ndarray | None) -> None:
    """Classes, numbers, nothing."""
    assert describe_unknown_letters("a", labels, IDS) is None


def test_the_users_function_says_its_letters(tmp_path: Path) -> None:
    """``BestPath`` does; a plain function has none, and what is no list is told."""
    file = tmp_path / "read.py"
    file.write_text(
        "from qbench.models.ctc import BestPath\n"
        "read = BestPath('ab')\n"
        "def plain(outputs): return ['a'] * len(outputs)\n"
        "def odd(outputs): return []\n"
        "odd.alphabet = 3\n"
    )
    assert Postprocess(file=file, attribute="read").read_alphabet() == ("a", "b")
    assert Postprocess(file=file, attribute="plain").read_alphabet() is None
    with pytest.raises(EvaluateError, match=r"read.py.*'int' object is not iterable"):
        Postprocess(file=file, attribute="odd").read_alphabet()
    scores = np.eye(3, dtype=np.float32)[[[1, 1, 0, 2]]]
    assert Postprocess(file=file, attribute="read").load()((scores,), None).tolist() == [[97, 98]]
    assert BestPath("ab", blank=2)(np.eye(3)[[[0, 2, 0]]]) == ["aa"]
    assert BestPath("ab", blank=1)(np.eye(3)[[[0, 1, 2, 2]]]) == ["ab"]
    with pytest.raises(ValueError, match="3 scores a step, and 3 letters beside the blank"):
        BestPath("abc")(np.eye(3)[None])


def test_letters_stand_in_rapidocrs_files(tmp_path: Path) -> None:
    """One a line, and a space behind them; another file has none."""
    graph = onnx.helper.make_graph([], "g", [], [])
    model = onnx.helper.make_model(graph)
    onnx.save(model, tmp_path / "bare.onnx")
    onnx.helper.set_model_props(model, {"character": "a\né\n🛅"})
    onnx.save(model, tmp_path / "rec.onnx")
    assert read_alphabet(tmp_path / "rec.onnx") == ("a", "é", "🛅", " ")
    with pytest.raises(ValueError, match=r"bare.onnx: it holds no list 'character' of its letters; give them"):
        read_alphabet(str(tmp_path / "bare.onnx"))


def test_the_first_place_is_the_blank_unless_it_is_named() -> None:
    """A letter that repeats is one, and two with a blank between them."""
    scores = np.eye(3)[[[0, 1, 1, 0, 1, 2, 2], [2, 2, 2, 0, 0, 0, 0]]]
    assert decode_best_path(scores, "ab") == BestPath("ab")(scores) == ["aab", "b"]
    assert decode_best_path(scores, "ab", blank=2) == BestPath("ab", blank=2)(scores) == ["abab", "a"]
    with pytest.raises(ValueError, match="3 scores a step, and 3 letters beside the blank"):
        decode_best_path(scores, "abc")


def test_the_letters_of_a_file_are_read_without_its_weights(tmp_path: Path) -> None:
    """Which may lie elsewhere; a file without a list says what to do."""
    weights = onnx.numpy_helper.from_array(np.zeros(2000, np.float32), "w")
    graph = onnx.helper.make_graph([], "g", [], [], [weights])
    model = onnx.helper.make_model(graph)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ValueError, match="it holds no list 'character' of its letters; give them as a list"):
        read_alphabet(tmp_path / "m.onnx")
    model.metadata_props.add(key="other", value="x")
    model.metadata_props.add(key="character", value="a\nb")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert read_alphabet(tmp_path / "m.onnx") == ("a", "b", " ")
