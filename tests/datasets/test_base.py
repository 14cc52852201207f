"""Rules of datasets/base.py: examples by position, and a split that is read once however often it is drawn from."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.datasets.base import Dataset, Examples, positions
from qbench.errors import DataError


class Counted(Dataset):
    """Two splits of some rows; ``asked`` are those that were read."""

    name, splits = "counted", ("train", "test")

    def __init__(self) -> None:
        self.asked: list[str] = []

    def load(self, split: str) -> Examples:
        """Three rows, or five."""
        self.asked.append(split)
        count = 3 if split == "train" else 5
        return Examples(inputs=(np.arange(count)[:, None],), labels=np.arange(count) * 2, ids=tuple("abcde"[:count]))


def test_a_split_is_read_once_for_all_that_is_drawn_of_it() -> None:
    """Counting it, too; another split takes its place."""
    dataset = Counted()
    assert dataset.known_labels("train") is None
    assert len(dataset.sample("train", 2, 0)) == 2
    assert len(dataset.sample("train", None, 1)) == 3
    assert dataset.count("train") == 3
    assert dataset.asked == ["train"]
    labels = dataset.known_labels("train")
    assert labels is not None
    assert labels.tolist() == [0, 2, 4]
    assert dataset.known_labels("test") is None
    assert (dataset.count("test"), dataset.count("test")) == (5, 5)
    assert dataset.known_labels("train") is None
    assert len(dataset.sample("test", 4, 0)) == 4
    assert dataset.asked == ["train", "test"]
    assert len(dataset.sample("train", 1, 0)) == 1
    assert dataset.asked == ["train", "test", "train"]


def test_a_draw_is_that_of_its_seed() -> None:
    """Any whole number is one; a seed below 0 is that which is 2**32 more."""
    assert positions(50, 5, -1).tolist() == positions(50, 5, 2**32 - 1).tolist()
    assert positions(50, 5, 2**32).tolist() == positions(50, 5, 0).tolist() != positions(50, 5, 1).tolist()
    assert positions(3, 3, 7).tolist() == [0, 1, 2]


@pytest.mark.parametrize("samples", [0, 4, -1])
def test_so_many_are_drawn_as_there_are(samples: int) -> None:
    """One at the least; the split is named."""
    with pytest.raises(DataError, match=rf"^counted: split 'train': samples: {samples} were asked for, there are 3; w"):
        Counted().sample("train", samples, 0)
    assert len(Counted().sample("train", 1, 0)) == 1


def test_examples_are_taken_with_their_labels_and_ids() -> None:
    """In the order that is asked for; what they have none of they have none of then."""
    whole = Counted().load("test")
    taken = whole.take(np.array([4, 0, 4]))
    assert taken.inputs[0].tolist() == [[4], [0], [4]]
    assert taken.labels is not None
    assert (taken.labels.tolist(), taken.ids) == ([8, 0, 8], ("e", "a", "e"))
    bare = Examples(inputs=whole.inputs, labels=None).take(np.array([1]))
    assert (bare.labels, bare.ids) == (None, ())


def test_a_digest_tells_inputs_and_labels_apart() -> None:
    """Each by type, shape and bytes: where labels stand as a second input, it is another."""
    values, labels = np.arange(6, dtype=np.int64).reshape(3, 2), np.arange(3)
    variants = [
        Examples(inputs=(values,), labels=labels),
        Examples(inputs=(values,), labels=None),
        Examples(inputs=(values.reshape(6, 1),), labels=labels),
        Examples(inputs=(values.astype(np.uint64),), labels=labels),
        Examples(inputs=(values + 1,), labels=labels),
        Examples(inputs=(values,), labels=labels + 1),
        Examples(inputs=(values, values), labels=labels),
    ]
    digests = [examples.digest() for examples in variants]
    assert len(set(digests)) == len(digests)
    assert Examples(inputs=(np.asfortranarray(values),), labels=labels, ids=("a",)).digest() == digests[0]
