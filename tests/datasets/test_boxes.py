"""Boxes as labels: filled up, told from masks, and checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench import registry
from qbench.datasets.base import Dataset, Examples
from qbench.datasets.boxes import NO_BOX, are_boxes, join_boxes
from qbench.datasets.validation import check_dataset, read_labels
from qbench.errors import DataError


class Two(Dataset):
    """Two images with boxes of two classes."""

    name, splits, classes = "two", ("train",), 2

    def load(self, split: str) -> Examples:
        """One box, and none."""
        labels = join_boxes([np.array([[1, 2, 3, 4, 1, 0]], dtype=np.float32), NO_BOX[:0]])
        return Examples(inputs=(np.zeros((2, 3, 8, 8), np.uint8),), labels=labels)


def test_images_have_as_many_rows() -> None:
    """Those behind their boxes are -1; without a box anywhere each has one such row."""
    single, pair = np.ones((1, 6), np.float32), np.full((2, 6), 2, np.float32)
    joined = join_boxes([single, pair, NO_BOX[:0]])
    assert joined.shape == (3, 2, 6)
    assert [(rows[:, 4] >= 0).sum() for rows in joined] == [1, 2, 0]
    assert (joined[2] == -1).all()
    assert join_boxes([NO_BOX[:0]]).tolist() == [[[-1.0] * 6]]


def test_boxes_are_told_from_other_labels() -> None:
    """Masks are whole numbers, classes have one axis."""
    assert are_boxes(join_boxes([NO_BOX[:0]]))
    assert not are_boxes(np.zeros((2, 6, 6), np.int16))
    assert not are_boxes(np.zeros(6, np.float32))


def test_boxes_that_fit_pass() -> None:
    """Rows that are no boxes among them."""
    check_dataset(Two(), "train", Two().load("train"))


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (4, 2.0, "1 examples have boxes of other classes than 0 to 1"),
        (4, 0.5, "boxes of other classes than 0 to 1"),
        (2, 0.0, "1 examples have boxes that end before they begin: example 0; a box is x1, y1, x2, y2, class, crowd"),
        (0, np.nan, "1 labels are NaN or infinite: example 0"),
    ],
)
def test_boxes_that_do_not_fit_are_told(column: int, value: float, words: str) -> None:
    """With their examples."""
    examples = Two().load("train")
    labels = np.array(examples.labels)
    labels[0, 0, column] = value
    with pytest.raises(DataError, match=words):
        check_dataset(Two(), "train", replace(examples, labels=labels))


BOX = [1.0, 2, 3, 4, 1, 0]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([[BOX], [BOX, BOX]], [[BOX, [-1] * 6], [BOX, BOX]]),
        ([np.zeros((0, 6)), np.array([BOX])], [[[-1] * 6], [BOX]]),
        ([[7, 8], [9], []], [[7, 8], [9, -1], [-1, -1]]),
        ([[7, 8], [9, 10]], [[7, 8], [9, 10]]),
    ],
)
def test_labels_may_be_of_different_lengths(raw: list[Any], expected: list[Any]) -> None:
    """Boxes, and rows of whole numbers, are filled up behind their end."""
    labels = read_labels(raw, "labels")
    assert labels.tolist() == expected
    assert are_boxes(labels) == (np.ndim(expected) == 3)


def test_batches_may_have_more_than_others(tmp_path: Path) -> None:
    """A loader gives each batch as many rows as its longest image; the data set those of the longest of all."""
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n"
        "def load(split):\n"
        "    for count in (1, 3, 2):\n"
        "        boxes = [np.full((m, 6), 1.0) for m in range(1, count + 1)]\n"
        "        yield np.random.default_rng(count + 9 * (split == 'test')).random((count, 4)), boxes\n"
    )
    dataset = registry.load("dataset", "python")("mine.py:load", base=tmp_path, options={})
    labels = np.asarray(dataset.load("train").labels)
    assert labels.shape == (6, 3, 6)
    assert (labels[..., 4] >= 0).sum(axis=1).tolist() == [1, 1, 2, 3, 1, 2]
