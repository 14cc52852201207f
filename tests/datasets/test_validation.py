"""Rules of datasets/validation.py at their edges; each message in test_datasets.py."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from qbench.datasets import validation
from qbench.datasets.base import Dataset, Examples
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.validation import check_dataset, read_inputs, read_labels, require_alike, require_split
from qbench.errors import DataError

INPUTS = np.ones((4, 3, 2), dtype=np.float32)
BOX, CROWD, NOTHING = [1.0, 2.0, 5.0, 6.0, 1.0, 0.0], [1.0, 2.0, 1.0, 2.0, 0.0, 1.0], [-1.0] * 6


class Held(Dataset):
    """What a test says of it."""

    name, splits = "held", ("train", "test")

    def __init__(self, classes: int | None = None, preprocessing: Preprocessing | None = None) -> None:
        self.classes = classes
        self.preprocessing = preprocessing or Preprocessing()

    def load(self, split: str) -> Examples:
        """Nothing: tests hand their examples to the check."""
        raise NotImplementedError


def complaint(labels: Any = None, *inputs: np.ndarray, classes: int | None = 3, **parameters: Any) -> str | None:
    """What is said of these examples; None where they are fine."""
    examples = Examples(inputs=inputs or (INPUTS,), labels=None if labels is None else np.asarray(labels))
    try:
        check_dataset(Held(classes, Preprocessing(**parameters)), "test", examples)
    except DataError as error:
        return str(error).removeprefix("held: split 'test': ")
    return None


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        ([0, 1, 2, 2], 3, None),
        ([0, 1, 2, 3], 3, "1 labels are outside the 3 classes 0 to 2: 3 (examples example 3); correct them or `cla"),
        ([0, -1, 2, -1], 3, "2 labels are outside the 3 classes 0 to 2: -1 (examples example 1, example 3)"),
        ([0, 9, 9, 9], None, None),
        ([0.5, 1, 2, 2], None, None),
        (np.zeros((4, 2), dtype=int), 3, "labels of 3 classes must be whole numbers of shape (4,), these are int64"),
        (np.zeros((4, 2, 6), dtype=int), 3, None),
        (7, None, "4 inputs but 1 labels; every example needs one label"),
        ([[BOX], [CROWD], [NOTHING], [BOX]], 3, None),
        ([[BOX], [[*BOX[:4], 2.0, 0.0]], [NOTHING], [BOX]], 3, None),
        ([[BOX], [[*BOX[:4], 3.0, 0.0]], [NOTHING], [[*BOX[:4], -2.0, 0.0]]], 3,
         "2 examples have boxes of other classes than 0 to 2 (-1: no box), in the fifth column: example 1, example 3;"),
        ([[BOX], [[*BOX[:4], 0.5, 0.0]], [NOTHING], [BOX]], 3, "1 examples have boxes of other classes"),
        ([[BOX], [[5.0, 2.0, 1.0, 6.0, 0.0, 0.0]], [[1.0, 6.0, 5.0, 2.0, 1.0, 0.0]], [BOX]], 3,
         "2 examples have boxes that end before they begin: example 1, example 2; a box is x1, y1, x2, y2, class, "),
        ([[BOX], [[5.0, 2.0, 1.0, 6.0, -1.0, 0.0]], [NOTHING], [BOX]], 3, None),
        ([[[0, 2]], [[-1, 1]], [[1, 1]], [[0, 0]]], 3, None),
        ([[[0, 3]], [[-2, 1]], [[1, 1]], [[0, 0]]], 3,
         "2 masks hold other numbers than those of the 3 classes, 0 to 2: -2, 3 (examples example 0, example 1); c"),
        (np.full((4, 1, 2), np.inf), None, "4 labels are NaN or infinite: example 0, example 1, example 2, example"),
    ],
)  # fmt: skip
def test_labels_are_classes_boxes_or_masks(labels: Any, classes: int | None, expected: str | None) -> None:
    """Each of a number of classes, where that is known; a row of -1 is no box, a pixel of -1 is of no class."""
    said = complaint(labels, classes=classes)
    assert said == expected or (said is not None and expected is not None and said.startswith(expected))


@pytest.mark.parametrize(
    ("parameters", "is_fine"),
    [
        ({"mean": (1.0, 2.0, 3.0)}, True),
        ({"std": (1.0, 2.0, 3.0)}, True),
        ({"mean": (1.0, 2.0)}, False),
        ({"std": (1.0, 2.0)}, False),
        ({"mean": (1.0, 2.0), "channel_axis": 2}, True),
        ({"mean": (1.0, 2.0), "channel_axis": -1}, True),
        ({"mean": (1.0, 2.0), "channel_axis": 3}, False),
        ({"mean": (1.0, 2.0), "to_float": False}, True),
        ({"mean": (1.0,), "channel_axis": 3}, True),
    ],
)
def test_means_and_deviations_are_of_the_channels(parameters: dict[str, Any], is_fine: bool) -> None:
    """One number is for all of them; of tokens nothing is scaled."""
    assert (complaint(**parameters) is None) == is_fine


def test_numbers_that_are_none_are_seen_in_every_part_of_large_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs are looked at in blocks; an input of whole numbers has none of these."""
    monkeypatch.setattr(validation, "BLOCK", 12)  # two examples
    for place in range(4):
        broken = INPUTS.copy()
        broken[place, 2, 1] = np.nan
        said = complaint(None, INPUTS, broken, np.ones(4, dtype=int))
        assert said is not None
        assert said.startswith(f"1 of 4 examples have NaN or infinite inputs: example {place}; remove them")
    assert complaint(None, np.ones(5)) is None


def test_inputs_hold_values_and_are_named_where_there_are_several() -> None:
    """An axis of no length leaves nothing to give a network."""
    assert complaint(None, np.ones((4, 0))) == (
        "inputs: its examples hold no value: the array has shape (4, 0); give values"
    )
    assert complaint(None, np.ones((4, 2)), np.ones((3, 2))) == (
        "the inputs have different numbers of examples: [3, 4]"
    )
    said = complaint(None, INPUTS, np.array(["a"] * 4))
    assert said == "inputs[1] must be numbers, these are text"
    assert complaint(None, np.array([1j] * 4)) == "inputs must be numbers, these are complex numbers"
    assert complaint(None, np.array(["2020"] * 4, dtype="datetime64")) == (
        "inputs must be numbers, these are of type datetime64[Y]"
    )


def test_a_split_that_is_not_there_is_answered_with_those_that_are() -> None:
    """The nearest first."""
    require_split(Held(), "test")
    with pytest.raises(DataError, match=r"^held: no split 'tests'; did you mean 'test'\? there are: train, test$"):
        require_split(Held(), "tests")
    with pytest.raises(DataError, match=r"^held: no split 'x'; there are: train, test$"):
        require_split(Held(), "x")


def test_one_network_takes_all_splits() -> None:
    """Of as many inputs, with as many axes each; their lengths may differ."""
    wide, narrow, flat = (Examples(inputs=(np.ones(shape),), labels=None) for shape in ((2, 3), (4, 5), (4,)))
    require_alike(Held(), {"train": wide, "test": narrow})
    require_alike(Held(), {"train": wide})
    message = (
        "held: one network cannot take both: split 'train': 1 input, float64[2, 3]; split 'test': 1 input, float64[4]; "
        "give both splits the same axes"
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        require_alike(Held(), {"train": wide, "test": flat})
    both = Examples(inputs=(np.ones((2, 3)), np.ones((2, 3))), labels=None)
    with pytest.raises(DataError, match=r"split 'test': 2 inputs, float64\[2, 3\], float64\[2, 3\]"):
        require_alike(Held(), {"train": wide, "test": both})


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([[1, 2], [3]], [[1, 2], [3, -1]]),
        ([np.array([1, 2]), [], (3,)], [[1, 2], [-1, -1], [3, -1]]),
        ([[BOX], [BOX, BOX], []], [[BOX, NOTHING], [BOX, BOX], [NOTHING, NOTHING]]),
        ([[[1, 2, 5, 6, 1, 0]], []], [[BOX], [NOTHING]]),
        ([[1], [2]], [1, 2]),
        ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (np.array([[[1], [2]]]), [[[1], [2]]]),
        ([True, False], [1, 0]),
        ([[0.5], [1.5]], [0.5, 1.5]),
    ],
)
def test_labels_of_different_lengths_are_filled_up(raw: Any, expected: list[Any]) -> None:
    """Boxes and rows of whole numbers; a single column is no axis of its own."""
    labels = read_labels(raw, "d")
    assert labels.tolist() == expected
    assert labels.dtype.kind == ("f" if "." in str(expected) else "i")


@pytest.mark.parametrize(
    ("read", "raw", "message"),
    [
        (
            read_labels,
            [[0.5, 1.0], [2.0]],
            "d: examples have different lengths: example 0 is [2], example 1 is [1]: give ",
        ),
        (
            read_labels,
            [[[1, 2]], [[3]]],
            "d: examples have different lengths: example 0 is [1, 2], example 1 is [1, 1]",
        ),
        (read_labels, np.array([[1], [1, 2]], dtype=object), "d: examples have different lengths: example 0 is [1], "),
        (read_labels, ["a", "b"], "d: labels must be numbers, these are text; write class names as 0, 1, 2"),
        (
            read_inputs,
            [[1, 2], [1, 2], [3]],
            "d: examples have different lengths: example 0 is [2], example 2 is [1]: ",
        ),
        (
            read_inputs,
            [[[1, 2], [3]], [[1, 2], [3]]],
            "d: the rows of an example have different lengths: fill all up to",
        ),
        (read_inputs, ["a"], "d: inputs must be numbers, these are text"),
        (read_inputs, [None], "d: inputs must be numbers, these are Python objects"),
    ],
)
def test_what_no_array_can_hold_says_where_lengths_differ(read: Any, raw: Any, message: str) -> None:
    """The first example and the first that is another."""
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        read(raw, "d")


def test_inputs_are_looked_at_in_blocks_of_four_million_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check needs little memory beside what it checks."""
    asked = []
    isfinite = np.isfinite

    def note(values: np.ndarray) -> Any:
        asked.append(values.shape)
        return isfinite(values)

    monkeypatch.setattr(validation.np, "isfinite", note)
    assert complaint(None, np.zeros((9, 1 << 20), np.float16)) is None
    assert asked == [(4, 1 << 20), (4, 1 << 20), (1, 1 << 20)]


def test_the_first_five_values_and_examples_are_named() -> None:
    """Of labels and of masks; the others are counted."""
    inputs = np.ones((6, 1))
    said = [
        complaint(np.arange(3, 9), inputs),
        complaint(np.arange(3, 9).reshape(6, 1, 1), inputs),
    ]
    for text in said:
        assert text is not None
        assert "3, 4, 5, 6, 7" in text
        assert "example 4" in text
        assert ", 8" not in text
        assert "example 5" not in text
