"""Rules of datasets/batches.py: what a user's function gives batch by batch is the whole arrays it is made of."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from qbench.datasets.batches import are_batches, join
from qbench.errors import DataError

X = np.arange(10, dtype=np.float32).reshape(5, 2)
Y = np.arange(5)
NAMES = ["a", "b", "c", "d", "e"]
BOX = [0.0, 1.0, 2.0, 3.0, 1.0, 0.0]


def empty() -> Iterator[Any]:
    """A generator that is used up."""
    yield from ()


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ([X], True),
        (empty(), True),
        (torch.utils.data.DataLoader(torch.ones(3, 1)), True),
        ((X, Y), False),
        ({"inputs": X}, False),
        (X, False),
        (torch.ones(2), False),
        ("text", False),
        (b"bytes", False),
        (None, False),
    ],
)
def test_what_is_read_batch_by_batch(result: Any, expected: bool) -> None:
    """What can be iterated and is no whole: an array, a pair, a dict, a text."""
    assert are_batches(result) == expected


@pytest.mark.parametrize(
    ("batches", "inputs", "has_labels", "has_ids"),
    [
        ([(X[:3], Y[:3]), (X[3:], Y[3:])], 1, True, False),
        ([[X[:3], Y[:3].tolist()], [X[3:], Y[3:].tolist()]], 1, True, False),
        ([X[:1], X[1:2], X[2:]], 1, False, False),
        ([(X[:3],), (X[3:],)], 1, False, False),
        ([((X[:3], X[:3]), Y[:3]), ((X[3:], X[3:]), Y[3:])], 2, True, False),
        ([([X[:3], X[:3]], Y[:3]), ([X[3:], X[3:]], Y[3:])], 2, True, False),
        ([(X[:3].tolist(), Y[:3]), (X[3:].tolist(), Y[3:])], 1, True, False),
        ([{"inputs": X[:3], "ids": NAMES[:3]}, {"inputs": X[3:], "ids": NAMES[3:]}], 1, False, True),
        ([{"inputs": X[:4], "labels": Y[:4], "ids": NAMES[:4]}, {"inputs": X[4:], "labels": Y[4:], "ids": "e"}],
         1, True, True),
    ],
)  # fmt: skip
def test_batches_become_whole_arrays(batches: list[Any], inputs: int, has_labels: bool, has_ids: bool) -> None:
    """One after the other, whichever way they are given; a list of arrays is several inputs, a list of numbers one."""
    for given in (batches, iter(batches)):
        whole = join(given, "d.py:load")
        assert [array.tolist() for array in whole["inputs"]] == [X.tolist()] * inputs
        assert (whole["labels"] is not None) == has_labels
        assert not has_labels or whole["labels"].tolist() == Y.tolist()
        assert whole["ids"] == (NAMES if has_ids else None)


def test_labels_have_as_many_rows_as_the_longest_of_any_batch() -> None:
    """Boxes, and rows of whole numbers such as texts: those of other batches are filled up behind with -1. Of rows of
    numbers with a point each has its meaning."""
    boxes = [np.array([[BOX, BOX, BOX]], np.float32), np.array([[BOX], [BOX]], np.float32)]
    whole = join([(X[:1], boxes[0]), (X[1:3], boxes[1])], "d.py")["labels"]
    nothing = [-1.0] * 6
    assert whole.tolist() == [[BOX, BOX, BOX], [BOX, nothing, nothing], [BOX, nothing, nothing]]
    rows = join([(X[:1], np.array([[7, 8]])), (X[1:3], np.array([[1, 2, 3], [4, 5, 6]]))], "d.py")["labels"]
    assert rows.tolist() == [[7, 8, -1], [1, 2, 3], [4, 5, 6]]
    with pytest.raises(
        DataError, match=r"batch 0 has inputs \[2\], labels \[2\], batch 1 has inputs \[2\], labels \[3\]"
    ):
        join([(X[:2], X[:2]), (X[2:4], np.ones((2, 3)))], "d.py")


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([X, Y], "d.py: got a list of two arrays: return a tuple, `return inputs, labels`"),
        (empty(), "d.py: the generator gave no batch; is its data empty, or was it read before?"),
        ([(X[0], 3)] * 3, "d.py: batch 0 is a single example (list): give batches, as DataLoader("),
        ([(X[0], np.int64(3))] * 3, "d.py: batch 0 is a single example (list): give batches"),
        ([X[:2], (X[:2], Y[:2]), X], "batch 0 has inputs [2], no labels, batch 1 has inputs [2], labels []; give"),
        ([(X, Y), (X[:3], Y)], "d.py: batch 1: inputs and labels are of different numbers of examples: [3, 5]"),
        ([((X, X[:2]), Y)] * 3, "d.py: batch 0: inputs and labels are of different numbers of examples: [5, 2, 5]"),
        ([{"inputs": X, "ids": NAMES}, {"inputs": X}], "[2], no labels, ids, batch 1 has inputs [2], no labels; give"),
        ([{"labels": Y}], "batch 0: expected (inputs, labels), inputs alone, or a dict of inputs, labels and ids, "
                          "got a dict of labels"),
        ([{"inputs": X, "mask": X}], "got a dict of inputs, mask"),
        ([{}], "got a dict of nothing"),
        ([(X, X, Y)], "got tuple of 3; several inputs go into a tuple of their own, (first, second), labels"),
        ([()], "got tuple of 0; several inputs"),
        ([3], "d.py: batch 0 of the list: expected (inputs, labels), inputs alone, or a dict of inputs, labels and "
              "ids, got int"),
    ],
)  # fmt: skip
def test_what_is_no_batch_names_its_number_and_what_is_expected(result: Any, message: str) -> None:
    """And where its form is another one than the first batch's, both."""
    with pytest.raises(DataError, match=re.escape(message)) as raised:
        join(result, "d.py")
    assert ("several inputs" in str(raised.value)) == ("tuple of" in message and "list" not in message)


class Loader:
    """Batches of numbers by chance, as a DataLoader that shuffles and has processes of its own."""

    def __init__(self, workers: int) -> None:
        self.num_workers, self.timeout = workers, 9

    def __iter__(self) -> Iterator[Any]:
        yield torch.rand(3, 2)


def test_a_loader_draws_the_same_every_time_and_in_this_process() -> None:
    """From one seed, whatever was drawn before, and what is drawn behind it is left alone."""
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = join(Loader(0), "d.py")["inputs"][0]
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(7)
    loader = Loader(4)
    assert np.array_equal(join(loader, "d.py")["inputs"][0], first)
    assert (loader.num_workers, loader.timeout) == (0, 0)
    left = Loader(0)
    join(left, "d.py")
    assert left.timeout == 9


def test_batches_of_arrays_need_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the user's file has not imported it, nothing here does."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert join([X[:1], X[1:2], X[2:]], "d.py")["inputs"][0].tolist() == X.tolist()


def test_what_is_drawn_by_chance_is_drawn_from_seed_0() -> None:
    """The examples of a run are those of every later one."""
    expected = torch.rand(3, 2, generator=torch.Generator().manual_seed(0))
    assert np.array_equal(join(Loader(0), "d.py")["inputs"][0], expected.numpy())
