"""Examples of the user's own for a check: read as init reads them, and as the file takes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from qbench import registry
from qbench.check.examples import COUNT, Examples, read_examples, require_fit
from qbench.errors import UsageError
from qbench.quant.artifacts.onnx_file import DeclaredInput

IMAGE = DeclaredInput(name="x", dtype="float32", sizes=("n", 3, 8, 8))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_examples_are_preprocessed_and_few(place):
    """Bytes become floats as a suite of init would have them, which is told; of many a sample is drawn."""
    values = np.random.default_rng(0).integers(0, 255, (300, 3, 8, 8)).astype(np.uint8)
    np.savez(place / "d.npz", inputs=values, labels=np.arange(300) % 4)
    examples = read_examples("d.npz", "model", None)
    assert len(examples) == COUNT == 64
    opened = registry.load("dataset", "npz")("d.npz", base=place, options={"scale": "1/255"})
    drawn = opened.sample("test", COUNT, 0)  # as the evaluation of a suite draws so many
    assert np.array_equal(examples.inputs[0], opened.preprocessing(drawn.inputs)[0])
    assert np.array_equal(examples.labels, drawn.labels)
    assert examples.inputs[0].dtype == np.float32
    assert examples.inputs[0].max() <= 1
    assert examples.labels is not None
    assert examples.notes == ("bytes become 0 to 1: write scale, mean and std as in training",)
    assert [array.shape for array in examples.take(2, 3)] == [(3, 3, 8, 8)]


def test_a_function_gives_what_it_returns(place):
    """Labels that are no classes are none to be right about."""
    Path("data.py").write_text(
        "import numpy as np\n"
        "def load(split):\n"
        "    rng = np.random.default_rng(len(split))\n"
        "    return rng.normal(size=(20, 4)).astype('float32'), np.linspace(0, 1, 20)\n"
    )
    examples = read_examples("data.py:load", "model", None)
    assert len(examples) == 20
    assert examples.labels is None


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ([np.zeros((4, 3, 8, 8), np.float32)] * 2, "gives 2 arrays, and the file takes 1: x"),
        (
            [np.zeros((4, 1, 8, 8), np.float32)],
            "gives float32 of 1 x 8 x 8 an example, and x takes float32 of n x 3 x 8",
        ),
        ([np.zeros((4, 3, 8), np.float32)], "gives float32 of 3 x 8 an example"),
        ([np.zeros((4, 3, 8, 8), np.int64)], "gives int64 of 3 x 8 x 8 an example"),
    ],
)
def test_what_the_file_does_not_take_is_told(arrays, words):
    """Number, type and sizes."""
    with pytest.raises(UsageError, match=words):
        require_fit(Examples(inputs=tuple(arrays), labels=None), (IMAGE,), 1)


def test_what_fits_passes():
    """A free size takes any; a call must be filled."""
    four = Examples(inputs=(np.zeros((4, 3, 8, 8), np.float32),), labels=None)
    require_fit(four, (IMAGE,), 4)
    with pytest.raises(UsageError, match="gives 4 examples to evaluate, and a call of the file takes 5"):
        require_fit(four, (IMAGE,), 5)


@pytest.mark.parametrize(
    ("labels", "why", "is_known"),
    [
        (np.arange(4), None, True),
        (np.arange(4, dtype=np.uint8), None, True),
        (np.arange(4.0), None, False),
        (np.eye(4, dtype=np.int64), None, False),
        (np.arange(4), "which output is which nobody knows", False),
        (None, None, False),
    ],
)
def test_labels_are_classes_where_they_are_whole_numbers_of_known_outputs(monkeypatch, labels, why, is_known):
    """A mask, a score, or a class whose output nobody has named, is nothing to be right about."""
    stored = SimpleNamespace(inputs=(np.ones((4, 3), np.float32),), labels=labels)
    dataset = SimpleNamespace(count=lambda split: 4, sample=lambda *_: stored, preprocessing=lambda inputs: inputs)
    facts = SimpleNamespace(open=lambda folder: dataset, test="test", against_fp32=why, notes=())
    monkeypatch.setattr("qbench.check.examples.describe_data", lambda *_: facts)
    assert (read_examples("d", "m", None).labels is not None) == is_known


def test_sizes_that_are_free_take_any_and_a_type_that_is_not_told_none():
    """Of any axis but the first, which is that of the examples."""
    four = Examples(inputs=(np.zeros((4, 3, 8, 8), np.float32),), labels=None)
    free = DeclaredInput(name="x", dtype="float32", sizes=(4, 3, None, "w"))
    require_fit(four, (free,), 4)
    for entry in (replace(free, sizes=(4, 3, 9, "w")), replace(free, dtype=None), replace(free, sizes=(4, 3, None))):
        with pytest.raises(UsageError, match=r"an example, and x takes"):
            require_fit(four, (entry,), 4)
