"""Rules of datasets/windows.py: documents as windows, each token counted once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qbench.datasets.windows import Windows


def test_windows_of_documents() -> None:
    """The last one ends with the document; what the one before counted is not counted again; a single token has none
    that follows it."""
    windows = Windows(length=4, stride=3, pad=9, kinds=("mask", "ids", "types"))
    examples = windows.cut(["a", "b", "c"], [np.arange(10, 17), np.array([5]), np.array([1, 2, 3])])
    mask, ids, types = examples.inputs
    assert ids.tolist() == [[10, 11, 12, 13], [12, 13, 14, 15], [1, 2, 3, 9]]
    assert mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]]
    assert types.tolist() == [[0] * 4] * 3
    assert examples.labels is not None
    assert examples.labels.tolist() == [[0, 11, 12, 13, 14], [0, -1, -1, 15, 16], [2, 2, 3, -1, -1]]
    assert examples.ids == ("a@0", "a@2", "c@0")


@given(st.lists(st.integers(0, 40), max_size=4), st.integers(1, 9), st.data())
def test_each_token_that_follows_another_is_counted_once(counts: list[int], length: int, data: st.DataObject) -> None:
    """In the order of the documents, whatever the windows share; no window is empty."""
    stride = data.draw(st.integers(1, length))
    documents = [100 * number + np.arange(count) for number, count in enumerate(counts)]
    examples = Windows(length=length, stride=stride, pad=7).cut([str(n) for n in range(len(counts))], documents)
    labels = examples.labels
    assert labels is not None
    assert labels[:, 1:][labels[:, 1:] != -1].tolist() == [t for document in documents for t in document[1:].tolist()]
    assert all((row[1:] != -1).any() for row in labels)
