"""Rules of datasets/overlap.py: which examples are the same to the network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qbench.datasets import overlap
from qbench.datasets.base import Examples


def take(*inputs: Any, ids: tuple[str, ...] = ()) -> Examples:
    return Examples(inputs=tuple(map(np.asarray, inputs)), labels=None, ids=ids)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (np.array([[1, 2]], np.uint8), np.array([[1, 2]], np.float32), True),
        (np.array([[1, 2]], np.uint8), np.array([[1, 2]], np.int64), True),
        (np.array([[1, 2]], np.float64), np.array([[1, 2]], np.float32), True),
        (np.array([[0.1]], np.float64), np.array([[0.1]], np.float32), True),
        (np.array([[1, 2]], ">i4"), np.array([[1, 2]], "<i4"), True),
        (np.array([[0.0]]), np.array([[-0.0]]), True),
        (np.array([[1, 2]]), np.array([[2, 1]]), False),
        (np.asfortranarray([[[1, 2], [3, 4]]]), np.array([[[1, 2], [3, 4]]]), True),
        (np.array([[2**24]]), np.array([[2**24 + 1]]), False),
        (np.array([[2**24]]), np.array([[2**24 + 1]], np.int32), False),
        (np.array([[2**24]]), np.array([[2.0**24]]), True),
        (np.array([[0.25]]), np.array([[0.75]], np.float32), False),
        (np.array([[0.25]]), np.array([[0]], np.uint8), False),
        (np.array([[1]], np.uint8), np.array([[257]]), False),
        (np.array([[1]], np.uint8), np.array([[257]], np.int16), False),
    ],
)
def test_examples_are_the_same_where_the_network_is_given_the_same(first: Any, second: Any, same: bool) -> None:
    """Whatever the type and the order of their bytes; whole numbers beside such count to the last digit."""
    for one_side, other in ((first, second), (second, first)):
        assert overlap.find_shared([take(one_side)], take(other)) == ({0: (0, 0)} if same else {})


def test_the_first_that_is_the_same_is_named() -> None:
    """Of several sides and examples; by ids, without repeating one that is called alike."""
    learned = [take([[1], [2], [1]], ids=("a", "b", "c")), take([[3], [1]])]
    examples = take([[3], [1], [9], [1]], ids=("x", "a", "y", "z"))
    shared = overlap.find_shared(learned, examples)
    assert shared == {0: (1, 0), 1: (0, 0), 3: (0, 0)}
    assert overlap.describe_pairs(examples, shared, learned) == "x, a, z (= a)"
    assert overlap.describe_pairs(take([[3], [1]]), {1: (0, 1)}, learned) == "example 1 (= b)"
    assert overlap.describe_pairs(take([[3], [1]]), {1: (1, 1)}, learned) == "example 1"


def test_examples_that_repeat_an_earlier_one_are_counted() -> None:
    """Each but the first; two that share some of their arrays are none."""
    assert overlap.find_repeated(take([[1], [1], [2], [1], [2]])) == 3
    assert overlap.find_repeated(take([[1], [1]], [[1], [2]])) == 0
    assert overlap.find_repeated(take([[1], [1]], [[2], [2]])) == 1


def test_the_end_of_an_input_is_no_beginning_of_the_next() -> None:
    """1, 2 and 3 are another example than 1 and 2, 3."""
    first, second = take([[1, 2]], [[3]]), take([[1]], [[2, 3]])
    assert overlap.find_shared([first], second) == {}


@pytest.mark.parametrize(
    ("types", "kind"),
    [({"u1"}, "u1"), ({"i2"}, "i2"), ({"u1", "i2"}, "i8"), ({"u1", "f8"}, "f4"), ({"f8"}, "f4"), ({"f4", "f8"}, "f4")],
)
def test_values_are_compared_in_the_least_type_that_holds_them(types: set[str], kind: str) -> None:
    """Bytes as bytes: pictures would be eight times as much to look at."""
    assert overlap._kind({np.dtype(each) for each in types}) == np.dtype(kind)


def test_examples_have_the_same_arrays_on_either_side_and_as_many_of_each() -> None:
    """Another number of them is a mistake of the caller."""
    with pytest.raises(ValueError, match="argument 2"):
        overlap.find_shared([take([[1]])], take([[1]], [[2]]))
    with pytest.raises(ValueError, match="argument 2"):
        overlap.find_repeated(take([[1], [2]], [[2]]))


@pytest.mark.parametrize("block", [1, 4, 1 << 22])
def test_large_splits_are_looked_at_in_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many examples one holds."""
    monkeypatch.setattr(overlap, "BLOCK", block)
    values = np.arange(14).reshape(7, 2)
    assert overlap.find_shared([take(values)], take(values[::-1])) == {place: (0, 6 - place) for place in range(7)}


def test_a_digest_is_the_same_however_examples_are_stored() -> None:
    """16 bytes of each, which bytes, floats and small whole numbers share; wide whole numbers have their own."""
    values = np.array([[1, 2], [3, 4], [1, 2]])
    narrow = [overlap.digest_examples(take(values.astype(kind))) for kind in (np.uint8, np.int16, np.float32, float)]
    wide = [overlap.digest_examples(take(values.astype(kind))) for kind in (np.int32, np.int64)]
    for digests in (narrow, wide):
        assert digests[0].shape == (3, 16)
        assert digests[0].dtype == np.uint8
        assert all((digest == digests[0]).all() for digest in digests)
        assert (digests[0][0] == digests[0][2]).all()
        assert (digests[0][0] != digests[0][1]).any()
    assert (narrow[0] != wide[0]).any()
    told = [overlap.digest_examples(take(*inputs)).tobytes().hex() for inputs in (([[1, 2]],), ([[1, 2]], [[3.0]]))]
    assert told == [
        "0c730b69905c5ef7a4ca5269f7236540",
        "f2bda748b9df366ccb09e9ef3a9a295e",
    ]  # those of every baseline that was ever written


def test_the_first_five_are_named() -> None:
    """The others are counted."""
    examples = take([[number] for number in range(7)], ids=tuple("abcdefg"))
    six = {number: (0, number) for number in range(6)}
    assert overlap.describe_pairs(examples, {n: six[n] for n in range(5)}, [examples]) == "a, b, c, d, e"
    assert overlap.describe_pairs(examples, six, [examples]) == "a, b, c, d, e and 1 more"


def test_a_block_is_sixteen_megabytes_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many rows as have four million values: a large split is never copied whole."""
    shapes = []
    ascontiguous = np.ascontiguousarray

    def note(rows: Any, dtype: Any) -> Any:
        shapes.append(rows.shape)
        return ascontiguous(rows, dtype=dtype)

    monkeypatch.setattr(overlap.np, "ascontiguousarray", note)
    overlap.digest_examples(take(np.zeros((9, 1 << 20), np.uint8)))
    assert shapes == [(4, 1 << 20), (4, 1 << 20), (1, 1 << 20)]
