"""Rules of qbench/quant/onnx/calibration/batches.py: what a model takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from qbench.errors import DataError, UsageError
from qbench.quant.onnx.calibration.batches import (
    Declared,
    Feeds,
    by_name,
    checked,
    doubtful,
    dtype_of,
    keep,
    one_example,
    plain,
    require_several_passes,
)

ROWS, IDS = np.zeros((4, 3), np.float32), np.ones((4, 2), np.int64)
X = Declared(name="x", shape=("n", 3), type="tensor(float)")
IDENTITIES = Declared(name="ids", shape=("n", None), type="tensor(int64)")
FREE = Declared(name="x", shape=(), type="tensor(float)")


@pytest.mark.parametrize(
    ("inputs", "batch", "said"),
    [
        ((X,), ROWS, None),
        ((X,), [ROWS], None),
        ((X,), {"x": ROWS}, None),
        ((X, IDENTITIES), (ROWS, IDS), None),
        ((X, IDENTITIES), {"ids": IDS, "x": ROWS}, None),
        ((X,), {"y": ROWS}, "inputs named y, the model has x"),
        ((X,), {"x": ROWS, "y": ROWS}, "inputs named x, y, the model has x"),
        ((X, IDENTITIES), ROWS, "1 arrays, the model has 2 inputs: x, ids"),
        ((X,), [], "0 arrays, the model has 1 inputs: x"),
        ((X,), ROWS.astype(np.float64), "input x takes float32, got float64; convert it with .astype('float32')"),
        ((X,), ROWS[:, :2], "input x has shape [4, 2], the model takes [n, 3]"),
        ((X,), ROWS[0], "input x has shape [3], the model takes [n, 3]"),
        ((X,), ROWS[:0], "input x has shape [0, 3]: there is nothing in it"),
        ((X, IDENTITIES), (ROWS, IDS[:3]), "n is 4 in input x and 3 in input ids"),
        ((Declared(name="x", shape=("a", "a"), type="tensor(float)"),), ROWS, "a is 4 in input x and 3 in input x"),
        ((Declared(name="x", shape=("?", "?"), type="tensor(float)"),), ROWS, None),
        ((Declared(name="x", shape=("", ""), type="tensor(float)"),), ROWS, None),
        ((Declared(name="x", shape=(-1, 3), type="tensor(float)"),), ROWS, None),
        ((Declared(name="x", shape=(-1, 4), type="tensor(float)"),), ROWS,
         "input x has shape [4, 3], the model takes [any, 4]"),
        ((Declared(name="x", shape=(None, 4), type="tensor(float)"),), ROWS,
         "input x has shape [4, 3], the model takes [any, 4]"),
        ((FREE,), ROWS, None),
        ((FREE,), ROWS[None, None], None),
        ((Declared(name="x", shape=(), type="sequence_type"),), ROWS,
         "input x is no tensor (sequence_type) and cannot be calibrated"),
        ((X,), np.where(np.eye(4, 3) > 0, np.float32(math.nan), np.float32(1)),
         "input x: 3 values are NaN or inf; correct the preprocessing"),
        ((X,), np.where(np.arange(12).reshape(4, 3) == 5, np.float32(-math.inf), np.float32(1)),
         "input x: 1 values are NaN or inf; correct the preprocessing"),
    ],
)  # fmt: skip
def test_a_batch_is_what_the_model_declares(inputs: Any, batch: Any, said: str | None) -> None:
    """In names, number, type, shape and sizes of one name; a size that nobody names is free wherever it stands."""
    if said is None:
        feed = checked(inputs, batch, 3)
        assert list(feed) == [each.name for each in inputs]
        assert feed["x"] is ROWS or feed["x"].shape == (1, 1, 4, 3)
        return
    with pytest.raises(DataError) as raised:
        checked(inputs, batch, 3)
    assert str(raised.value) == f"calibration data, batch 3: {said}"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tensor(float)", np.float32),
        ("tensor(double)", np.float64),
        ("tensor(float16)", np.float16),
        ("tensor(int64)", np.int64),
        ("tensor(bool)", np.bool_),
        ("seq(tensor(float))", None),
    ],
)
def test_types_have_numpys_names(kind: str, expected: Any) -> None:
    """None where it is no tensor of numbers."""
    assert dtype_of(kind) == (None if expected is None else np.dtype(expected))


@pytest.mark.parametrize(
    ("shape", "feed", "length"),
    [
        (("n", 3), {"x": ROWS}, 1),
        ((4, 3), {"x": ROWS}, 4),
        ((), {"x": ROWS}, 4),
        (("n", 3), {"x": ROWS[:1]}, 1),
        (("n", 3), {"x": ROWS, "y": IDS}, 1),
        (("n", 3), {"x": ROWS, "y": IDS[:2]}, 4),
        (("n", 3), {"x": ROWS, "y": np.array(1.0)}, 4),
    ],
)
def test_one_example_is_taken_where_arrays_have_one_length(shape: Any, feed: Any, length: int) -> None:
    """And the model demands no size."""
    taken = one_example([Declared(name="x", shape=shape, type="tensor(float)")], feed)
    assert len(taken["x"]) == length
    assert (taken is feed) == (length == len(ROWS) or len(feed["x"]) == 1)


def pixels(*values: float, rank: int = 3) -> Any:
    """These numbers as an array of some axes."""
    return np.array(values, np.float32).reshape([1] * (rank - 1) + [-1])


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (pixels(3, 3, 3), "input x: every value of the first examples is 3; is this the real data?"),
        (pixels(0, 255), "input x: whole numbers from 0 to 255 look like raw pixels"),
        (pixels(0, 17), "input x: whole numbers from 0 to 17 look like raw pixels"),
        (pixels(0, 16), None),
        (pixels(0, 256), None),
        (pixels(-1, 255), None),
        (pixels(0, 100.5), None),
        (pixels(0, 255, rank=2), None),
        (np.zeros((2, 2), np.int64), None),
    ],
)
def test_values_that_look_wrong_are_told(array: Any, said: str | None) -> None:
    """Of numbers with a point: all the same, or whole ones in the range of pixels of a picture."""
    told = doubtful({"x": array})
    assert len(told) == (said is not None)
    assert said is None or told[0].startswith(said)


def test_batches_are_read_anew_in_each_pass() -> None:
    """So many, numbered from 1; a function is called again, and data that ends early is told."""
    calls: list[int] = []

    def make() -> Iterator[Any]:
        calls.append(1)
        return iter([ROWS, ROWS, ROWS])

    feeds = Feeds((X,), make, 2)
    assert [[number for number, _ in feeds] for _ in range(2)] == [[1, 2]] * 2
    assert len(calls) == 2
    with pytest.raises(DataError, match="calibration saw fewer than batch_num batches: 3 of 4"):
        list(Feeds((X,), [ROWS] * 3, 4))
    for several in (make, [ROWS]):
        require_several_passes(several, ["balance"])
    with pytest.raises(UsageError, match="balance and AdaRound need several passes"):
        require_several_passes(iter([ROWS]), ["balance", "AdaRound"])


@pytest.mark.parametrize(
    ("batches", "examples", "count"),
    [
        ([ROWS, ROWS, ROWS], 5, 2),
        ([ROWS, ROWS, ROWS], 4, 1),
        ([ROWS], 100, 1),
        ([[ROWS, IDS[:1]]] * 3, 2, 2),
        ([{"x": ROWS, "t": np.array(1.0)}] * 3, 4, 1),
        ([np.array(1.0)] * 3, 2, 2),
        ([ROWS[:0]] * 3, 2, 2),
    ],
)
def test_as_many_batches_are_kept_as_surely_hold_the_examples(
    batches: list[Any], examples: int, count: int, tmp_path: Path
) -> None:
    """By the shortest of their arrays that has a length, one at least; each pass gives them again."""
    kept = keep(batches, tmp_path, examples)
    assert len(kept.files) == count
    for _ in range(2):
        read = list(kept())
        assert len(read) == count
        np.testing.assert_equal(read[0], plain(batches[0]))
    assert len(keep(lambda: iter(batches), tmp_path, examples).files) == count


def test_arrays_of_another_library_are_arrays_of_numpy() -> None:
    """One that is no list of arrays stays one."""
    other = SimpleNamespace(__array__=lambda dtype=None, copy=None: ROWS)
    assert [type(part) for part in plain([other, ROWS])] == [np.ndarray] * 2
    assert by_name([X], ROWS)["x"] is ROWS
    assert list(plain({"x": [[1.0]]})) == ["x"]


@pytest.mark.parametrize(
    ("shape", "kind", "expected"),
    [
        (("n", 3), "tensor(float)", 24),
        ((2, "k"), "tensor(int64)", None),
        ((2, None), "tensor(float)", None),
        ((2, -1), "tensor(float)", None),
        ((), "tensor(float)", None),
        (("n",), "seq(tensor(float))", None),
    ],
)
def test_how_many_bytes_a_declared_array_takes(shape: Any, kind: str, expected: int | None) -> None:
    """Where every size is known; a shape that is not known looks like that of a single number."""
    assert Declared(name="y", shape=shape, type=kind).count_bytes({"n": 2}) == expected
