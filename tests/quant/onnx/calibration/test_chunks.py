"""Calibration data is cut into chunks of bounded memory, where that changes no value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.calibration import chunks
from qbench.quant.onnx.calibration.parts import Model

BATCH = {"x0": np.arange(10, dtype=np.float32).reshape(5, 2)}
WIDE = {"x0": np.random.default_rng(0).random((5, 300_000), np.float32)}


class Answering:
    """A model that answers by functions of what it is fed, one for the outputs of each part."""

    def __init__(self, runs: Sequence[Any], *shapes: Any) -> None:
        self.session = self
        self.runs = runs
        self.inputs = [SimpleNamespace(name=f"x{i}", shape=shape) for i, shape in enumerate(shapes or [("n", 2)])]
        self.outputs = ()

    @contextmanager
    def prepare(self, sizes: Any, most: int) -> Iterator[Any]:
        """Part by part."""
        yield lambda feed, number: ({f"y{i}": run(feed["x0"])} for i, run in enumerate(self.runs))


def cut(
    monkeypatch: pytest.MonkeyPatch,
    runs: Sequence[Any],
    feed: Any,
    *shapes: Any,
    most: int = 16,
    separate: bool = False,
) -> list[int]:
    """The lengths of the chunks of a batch whose activations of one example may take so many bytes."""

    def infer(model: Any, names: Sequence[str], piece: Any, number: int) -> Any:
        return {f"y{i}": run(piece["x0"]) for i, run in enumerate(model.runs)}

    monkeypatch.setattr(chunks, "CHUNK_BYTES", most)
    monkeypatch.setattr(chunks, "infer", infer)
    model: Any = Answering(runs, *shapes)
    return [len(piece["x0"]) for piece in chunks.Chunker(separate=separate).cut(model, ["y0"], feed, 1)]


@pytest.mark.parametrize(
    ("run", "lengths"),
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
        (lambda x: x + np.concatenate([x[:0], x[:1] * 0, x[:-1]]), [5]),
    ],
)
def test_a_batch_is_cut_where_its_examples_do_not_depend_on_each_other(
    run: Any, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into chunks of at most so many bytes, one example at least; else it stays whole. Rounding is no dependence."""
    assert cut(monkeypatch, [run], BATCH) == lengths


@pytest.mark.parametrize(
    ("run", "lengths"),
    [
        (lambda x: x, [1] * 5),
        (lambda x: x.transpose(), [5]),
        (lambda x: x + x.mean(0), [5]),
        (lambda x: x * (1 + 1e-2 * (len(x) > 1)), [5]),
        (lambda x: x + np.concatenate([x[:1] * 0, x[:-1, ::-1]]), [5]),
        (lambda x: x * (1 + 1e-4 * (len(x) > 1)), [1] * 5),
    ],
)
def test_many_values_are_compared_by_a_sample(run: Any, lengths: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is spread over all of them."""
    assert cut(monkeypatch, [run], WIDE) == lengths
    sample = chunks._Sample.take(np.arange(300_000).reshape(3, -1))
    assert len(sample.values) == chunks.SAMPLE
    assert (sample.shape, sample.values[0], sample.values[-1]) == ((3, 100_000), 0, 299_999)
    assert np.diff(sample.values).max() <= 300_000 // chunks.SAMPLE + 1


def test_nothing_is_run_to_know_that_separate_examples_are_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is known, one call tells how large an example is, and none where the model declares that."""
    calls: list[int] = []
    run = lambda x: calls.append(len(x)) or x - x.mean(0)  # noqa: E731
    assert cut(monkeypatch, [run], BATCH, separate=True) == [2, 2, 1]
    assert calls == [1]


@pytest.mark.parametrize(("last", "lengths"), [(lambda x: x + 1, [1] * 5), (lambda x: x - x.mean(0), [5])])
def test_every_part_of_a_model_can_tell_that_examples_depend_on_each_other(
    last: Any, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last, too."""
    assert cut(monkeypatch, [lambda x: x, lambda x: x * 2, last], BATCH) == lengths


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

    assert cut(monkeypatch, [run], feed, *shapes) == [len(feed["x0"])]


def test_the_examples_of_a_chunk_are_counted_along_the_first_axis() -> None:
    """A single number is one."""
    for array, count in ((np.zeros((3, 2)), 3), (np.array(1.0), 1)):
        assert chunks.Chunk(batch=1, feed={"x": array}, values={}).examples == count


@pytest.mark.parametrize(
    ("most", "lengths", "nodes", "shown"),
    [
        (10_000, [3], [3], [["x", "a", "b", "c"]]),
        (800, [1] * 3, [3], [["x", "a", "b", "c"]]),
        (700, [1] * 3, [3, 1, 1, 1, 1, 1, 1], [["x", "a"], ["b"], ["c"]]),
    ],
)
def test_a_model_is_run_in_parts_where_the_activations_of_an_example_do_not_fit(
    most: int, lengths: list[int], nodes: list[int], shown: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sessions compute each node once: first to know whether examples depend on each other, then for all data. The
    inputs are shown with the first part."""
    monkeypatch.setattr(chunks, "CHUNK_BYTES", most)
    feed = {"x": np.random.default_rng(1).normal(size=(3, 32)).astype(np.float32)}
    weights = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)
    opened: list[int] = []
    real = onnxruntime_session.open_session

    def open_session(model: Any, **settings: Any) -> Any:
        opened.append(len(onnx.load_from_string(model).graph.node) if isinstance(model, bytes) else 3)
        return real(model, **settings)

    monkeypatch.setattr(onnxruntime_session, "open_session", open_session)
    ports = "(float[n,32] x) => (float[n,64] a, float[n,64] b, float[n,64] c)"
    body = "a = MatMul(x, w)\nb = Relu(a)\nc = Add(b, b)"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {ports} {{{body}}}')
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    onnx.save(model, tmp_path / "m.onnx")
    feeds = [(number, feed) for number in (1, 2)]
    whole = Model(tmp_path / "m.onnx", 1)
    seen = list(chunks.stream(whole, ("a", "b", "c"), feeds, chunks.Chunker()))
    assert opened == nodes
    assert [(chunk.batch, len(chunk.feed["x"]), chunk.part) for chunk in seen] == [
        (number, length, part) for number in (1, 2) for length in lengths for part in range(len(shown))
    ]
    assert [list(chunk.activations) for chunk in seen[: len(shown)]] == shown
    doubled = np.concatenate([chunk.values["c"] for chunk in seen if "c" in chunk.values])
    np.testing.assert_allclose(doubled, np.tile(2 * np.maximum(feed["x"] @ weights, 0), (2, 1)), rtol=1e-4, atol=1e-4)
