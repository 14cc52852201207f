"""Rules of qbench/quant/onnx/calibration/batches.py and chunks.py: what a model takes, and in which pieces."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.errors import DataError, UsageError
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.calibration import chunks
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


class Model:
    """Is its own session, and that of each group; answers by a function of what it is fed."""

    def __init__(self, run: Any, *shapes: Any) -> None:
        self.session = self
        self._run = run
        self.inputs = [SimpleNamespace(name=f"x{i}", shape=shape) for i, shape in enumerate(shapes or [("n", 2)])]
        self.outputs: tuple[Declared, ...] = ()

    def close(self) -> None:
        """As if closed."""

    @contextmanager
    def prepare_few(self) -> Iterator[Any]:
        """The same for all."""
        yield lambda names: self


def cut(monkeypatch: pytest.MonkeyPatch, run: Any, feed: Any, *shapes: Any, most: int = 16) -> list[int]:
    """The lengths of the pieces of a batch whose activations of one example may take so many bytes."""
    model = Model(run, *shapes)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", most)
    monkeypatch.setattr(chunks, "infer", lambda asked, names, part, number: {"y": asked._run(part["x0"])})
    return [len(part["x0"]) for part in chunks.Chunker().cut(model, ["y"], feed, 1)]


BATCH = {"x0": np.arange(10, dtype=np.float32).reshape(5, 2)}


@pytest.mark.parametrize(
    ("run", "pieces"),
    [
        (lambda x: x, [2, 2, 1]),
        (lambda x: x[:, :1], [4, 1]),
        (lambda x: np.repeat(x, 4, axis=1), [1] * 5),
        (lambda x: np.zeros((len(x), 0)), [5]),
        (lambda x: x - x.mean(0), [5]),
        (lambda x: x.sum(), [5]),
        (lambda x: x.T, [5]),
        (lambda x: x * (1 + 1e-4 * (len(x) > 1)), [2, 2, 1]),
        (lambda x: x * (1 + 1e-2 * (len(x) > 1)), [5]),
        (lambda x: (x * len(x)).astype(np.int64), [5]),
        (lambda x: x.astype(np.int8), [5]),
        (lambda x: np.where(x == 0, np.float32(math.nan), x), [2, 2, 1]),
        (lambda x: np.where(x == 0, np.float32(math.inf), x), [2, 2, 1]),
    ],
)
def test_a_batch_is_cut_where_its_examples_do_not_depend_on_each_other(
    run: Any, pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into pieces of at most so many bytes, one example at least; else it stays whole. Rounding is no dependence."""
    assert cut(monkeypatch, run, BATCH) == pieces


@pytest.mark.parametrize(
    ("feed", "shapes"),
    [
        (BATCH, [(5, 2)]),
        (BATCH, [()]),
        ({"x0": BATCH["x0"][:1]}, [("n", 2)]),
        ({"x0": BATCH["x0"], "x1": np.zeros((4, 1))}, [("n", 2), ("n", 1)]),
        ({"x0": BATCH["x0"], "x1": np.array(1.0)}, [("n", 2), ("m",)]),
    ],
)
def test_a_batch_stays_whole_where_nothing_can_be_cut(
    feed: Any, shapes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model demands its size, it holds one example, or its arrays are of several lengths; nothing is run."""

    def run(x: Any) -> Any:
        raise AssertionError("asked")

    assert cut(monkeypatch, run, feed, *shapes) == [len(feed["x0"])]


def test_outputs_are_compared_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group has a quarter of what a piece may hold, or an eighth of all, one output at least; each output can tell
    that examples depend on each other. Those that fit in a piece are compared at once."""
    sizes = {"a": 4, "b": 12, "c": 4, "d": 17, "e": 1}
    assert list(chunks._group(sizes, 16)) == [["a", "b"], ["c"], ["d"], ["e"]]
    same = [f"same{i}" for i in range(40)]  # of 8 bytes each
    outputs = {"z": lambda x: x.repeat(2, axis=1), "last": lambda x: x - x.mean(0), **dict.fromkeys(same, lambda x: x)}
    asked: list[list[str]] = []

    def infer(session: Any, names: Any, part: Any, number: int) -> Any:
        asked.append(list(names))
        return {name: outputs[name](part["x0"]) for name in names}

    monkeypatch.setattr(chunks, "infer", infer)
    for most, names, pieces, groups in (
        (16, ["same0", "z"], [1] * 5, [["same0"], ["z"]]),
        (16, ["same0", "z", "last"], [5], [["same0"], ["z"], ["last"]]),
        (48, ["same0", "z"], [2, 2, 1], [["same0", "z"]]),
        (64, same[:9], [1] * 5, [same[0:2], same[2:4], same[4:6], same[6:8], same[8:9]]),
        (64, same, [1] * 5, [same[start : start + 5] for start in range(0, 40, 5)]),
    ):
        asked.clear()
        monkeypatch.setattr(chunks, "CHUNK_BYTES", most)
        parts = chunks.Chunker().cut(Model(None), names, BATCH, 1)
        assert [len(part["x0"]) for part in parts] == pieces
        assert asked == [names, *[group for group in groups for _ in range(3)]]


def test_the_examples_of_a_piece_are_counted_along_the_first_axis() -> None:
    """A single number is one."""
    for array, count in ((np.zeros((3, 2)), 3), (np.array(1.0), 1)):
        assert chunks.Chunk(batch=1, feed={"x": array}, values={}).examples == count


def test_what_is_compared_apart_is_held_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not all outputs of an example fit in a piece, a session of each group holds no others, the model's own is
    closed by then, and one that is opened again answers as before; also where weights lie beside the file."""
    weights = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)
    body = "a = MatMul(x, w)\nb = Relu(a)\nc = Add(b, b)"
    ports = "(float[n,32] x) => (float[n,64] a, float[n,64] b, float[n,64] c)"
    text = f'<ir_version: 8, opset_import: ["": 17]> g {ports} {{{body}}}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "inside.onnx")
    onnx.save(model, tmp_path / "beside.onnx", save_as_external_data=True, location="values", size_threshold=0)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 400)
    open_sessions, held = weakref.WeakSet[Any](), []
    real = onnxruntime_session.open_session

    def open_session(model: Any, **settings: Any) -> Any:
        session = real(model, **settings)
        open_sessions.add(session)
        held.append([[value.name for value in each.get_outputs()] for each in open_sessions])
        return session

    monkeypatch.setattr(onnxruntime_session, "open_session", open_session)
    feed = {"x": np.random.default_rng(1).normal(size=(3, 32)).astype(np.float32)}
    for name in ("inside", "beside"):
        whole = chunks.Model(tmp_path / f"{name}.onnx", 1)
        held.clear()
        pieces = list(chunks.stream(whole, ("a", "b", "c"), [(1, feed)], chunks.Chunker()))
        assert held == [[["a", "b", "c"]], [["a"]], [["b"]], [["c"]], [["a", "b", "c"]]]
        values = np.concatenate([piece.values["a"] for piece in pieces])
        np.testing.assert_allclose(values, feed["x"] @ weights, rtol=1e-4, atol=1e-4)
        whole.close()


def test_outputs_that_do_not_fit_together_have_their_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group of twice what a piece may hold has a pass over all batches, by a session that computes no more than it
    needs; the inputs are shown in the first."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 200)
    feed = {"x": np.random.default_rng(1).normal(size=(3, 32)).astype(np.float32)}
    w = onnx.numpy_helper.from_array(np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32), "w")
    nodes: list[int] = []
    real = onnxruntime_session.open_session

    def open_session(model: Any, **settings: Any) -> Any:
        nodes.append(len(onnx.load_from_string(model).graph.node) if isinstance(model, bytes) else 3)
        return real(model, **settings)

    monkeypatch.setattr(onnxruntime_session, "open_session", open_session)
    ports = "(float[n,32] x) => (float[n,64] a, float[n,64] b, float[n,64] c)"
    body = "a = MatMul(x, w)\nb = Relu(a)\nc = Add(b, b)"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {ports} {{{body}}}')
    model.graph.initializer.append(w)
    onnx.save(model, tmp_path / "m.onnx")
    feeds = [(number, feed) for number in (1, 2)]
    whole = chunks.Model(tmp_path / "m.onnx", 1)
    pieces = list(chunks.stream(whole, ("a", "b", "c"), feeds, chunks.Chunker(), several=True))
    assert nodes == [3, 1, 2, 3, 1, 2, 3]
    assert [(piece.turn, piece.turns) for piece in pieces] == [(turn, 3) for turn in range(3) for _ in range(6)]
    assert [list(piece.values) for piece in pieces[::6]] == [["a"], ["b"], ["c"]]
    assert [list(piece.activations) for piece in pieces[::6]] == [["x", "a"], ["b"], ["c"]]
    doubled = np.concatenate([piece.values["c"] for piece in pieces[12:15]])
    np.testing.assert_allclose(doubled, 2 * np.maximum(feed["x"] @ onnx.numpy_helper.to_array(w), 0), rtol=1e-4)


@given(sizes=st.lists(st.integers(1, 100), min_size=1, max_size=30))
def test_there_are_three_turns_at_most(sizes: list[int]) -> None:
    """Each computes what lies before it once more. None has more than half of all bytes, or than two pieces may hold,
    unless it has a single output."""
    model = Model(None)
    model.outputs = tuple(Declared(name=str(i), shape=(size,), type="tensor(int8)") for i, size in enumerate(sizes))
    names = [value.name for value in model.outputs]
    with mock.patch.object(chunks, "CHUNK_BYTES", 10):
        groups = chunks.Chunker().group(model, names, 1, {"x0": BATCH["x0"][:1]})  # type: ignore[arg-type]
    assert [name for group in groups for name in group] == names
    assert len(groups) <= 3
    held = [sum(sizes[int(name)] for name in group) for group in groups if len(group) > 1]
    assert max(held, default=0) <= max(20, sum(sizes) // 2)


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
