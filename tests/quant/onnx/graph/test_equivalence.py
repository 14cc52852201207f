"""Rules of qbench/quant/onnx/graph/equivalence.py: which inputs are tried, and what is a difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx_networks import random_inputs, residual_cnn

from qbench.errors import ModelError
from qbench.quant.onnx.graph import equivalence
from qbench.quant.onnx.graph.graph import Graph


def parse(text: str, opset: int = 17) -> Graph:
    """A graph from onnx's text form, with its shapes."""
    header = f'<ir_version: 8, opset_import: ["" : {opset}]>\n'
    return Graph(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(header + text)))


TWICE = parse("g (float[n, 3] x) => (float[n, 3] y) { y = Add (x, x) }")
THREE = "g (float[n, 3] x) => (float[n, 3] y) { a = Add (x, x) y = Add (a, x) }"
NAN, INF = float("nan"), float("inf")


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (floats(1, -100), floats(1.0999, -100), None),
        (floats(1, -100), floats(1.11, -100), "largest difference 0.11 (largest value 100)"),
        (floats(0, 0), floats(0, 5e-10), None),
        (floats(0, 0), floats(0, 5e-9), "largest difference 5e-09 (largest value 0)"),
        (floats(NAN, INF, 1), floats(NAN, INF, 1), None),
        (floats(NAN, INF, 1), floats(INF, NAN, 1), "NaN or inf in other places"),
        (floats(INF, 1), floats(-INF, 1), "NaN or inf in other places"),
        (floats(1, 1), floats(1, NAN), "NaN or inf in other places"),
        (floats(NAN), floats(NAN), None),
        (floats(), floats(), None),
        (np.array([1, 2, 3]), np.array([1, 3, 2]), "2 of 3 values differ"),
        (np.array([True]), np.array([True]), None),
        (np.array([1]), np.array([1], np.int32), "int32 of shape (1,) instead of int64 of shape (1,)"),
        (floats(1), floats(1, 2), "float32 of shape (2,) instead of float32 of shape (1,)"),
        ([floats(1), floats(2)], [floats(1), floats(2)], None),
        ([floats(2), floats(3)], [floats(4), floats(9)], "largest difference 2 (largest value 2)"),
        ([floats(1)], [], "[] instead of [array([1.], dtype=float32)]"),
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": 2}, "{'a': 2} instead of {'a': 1}"),
    ],
)  # fmt: skip
def test_a_difference_is_told_in_words(ours: Any, theirs: Any, words: str | None) -> None:
    """Floats may differ by a thousandth of the largest finite one; all else is equal or not."""
    assert equivalence._difference(ours, theirs, 1e-3) == words


def test_a_graph_is_held_against_what_another_gave() -> None:
    """By the name of the output; one that cannot run says why."""
    held = equivalence.reference(TWICE)
    assert held is not None
    assert held.difference(TWICE) is None
    assert str(held.difference(parse(THREE))).startswith("output y: largest difference ")
    other = parse("g (float[n, 4] x) => (float[n, 4] y) { y = Add (x, x) }")
    assert str(held.difference(other)).startswith("ONNX Runtime cannot run the model: ")


def test_an_example_is_taken_as_it_is_or_refused() -> None:
    """Its arrays are the inputs in their order."""
    x = np.ones((2, 3), np.float32)
    held = equivalence.reference(TWICE, [x])
    assert held is not None
    assert held.inputs["x"] is x
    assert held.outputs[0].tolist() == [[2, 2, 2]] * 2
    assert held.tolerance == 1e-3
    with pytest.raises(ModelError, match="the example has 2 arrays, the model 1 inputs: x"):
        equivalence.reference(TWICE, [x, x])
    with pytest.raises(ModelError, match="the model does not take the example: "):
        equivalence.reference(TWICE, [np.ones((2, 4), np.float32)])
    half = parse("g (float16[n, 3] x) => (float16[n, 3] y) { y = Add (x, x) }")
    reference = equivalence.reference(half)
    assert reference is not None
    assert reference.tolerance == 2e-2
    with pytest.raises(ModelError, match="differ from call to call"):
        equivalence.reference(parse("g (float[n, 3] x) => (float[n, 3] y) { r = RandomNormalLike (x) y = Add (x, r) }"))


def test_random_inputs_are_tried_until_one_fits() -> None:
    """A graph that takes none of them, or of which types are not known, has no reference."""
    needs_16 = parse("g (float[n, m] x, float[16] w) => (float[n, m] y) { y = Add (x, w) }")
    held = equivalence.reference(needs_16)
    assert held is not None
    assert held.inputs["x"].shape == (1, 16)
    assert (
        equivalence.reference(parse("g (float[n, m] x, float[17] w) => (float[n, 17] y) { y = Add (x, w) }"))
        is not None
    )
    assert (
        equivalence.reference(parse("g (float[n, m] x, float[17, 3] w) => (float[n, 3] y) { y = MatMul (x, w) }"))
        is None
    )
    assert equivalence.reference(parse("g (string[n] x) => (string[n] y) { y = Identity (x) }")) is None


@pytest.mark.parametrize(
    ("inputs", "first", "count"),
    [
        ("float[n, c, h] x", {"x": (1, 64, 64)}, 8),
        ("float[2, c] x", {"x": (2, 64)}, 8),
        ("float[n, 3] x, int64[c, n] z", {"x": (1, 3), "z": (1, 1)}, 1),
        ("float[4, 3] x", {"x": (4, 3)}, 1),
        ("float x", {"x": ()}, 1),
        ("float[n, s, h] x, float[2, n, h] z", {"x": (1, 64, 64), "z": (2, 1, 64)}, 8),
    ],
)
def test_sizes_that_are_open_are_tried_one_after_the_other(inputs: str, first: Any, count: int) -> None:
    """The batch is 1 wherever its symbol stands; the second of a fixed first may be the batch; none is tried twice."""
    graph = parse(f"g ({inputs}) => (float[a] y) {{ y = Identity (x) }}")
    tried = list(equivalence.random_inputs(graph))
    assert {name: array.shape for name, array in tried[0].items()} == first
    shapes = [tuple(array.shape for array in each.values()) for each in tried]
    assert len(set(shapes)) == len(shapes) == count
    again = next(equivalence.random_inputs(graph))
    assert all(np.array_equal(again[name], array) for name, array in tried[0].items())
    for array in tried[0].values():
        assert array.dtype == (np.int64 if array.dtype.kind == "i" else np.float32)
        assert array.dtype.kind == "f" or set(np.unique(array)) <= {0, 1}


def test_inputs_that_are_too_large_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes, over all of them."""
    graph = parse("g (float[1, c] x, float[1, c] z) => (float[a] y) { y = Add (x, z) }")
    monkeypatch.setattr(equivalence, "LARGEST_INPUTS", 2 * 64 * 4)
    assert max(each["x"].shape[1] for each in equivalence.random_inputs(graph)) == 64
    monkeypatch.setattr(equivalence, "LARGEST_INPUTS", 2 * 64 * 4 - 1)
    assert max(each["x"].shape[1] for each in equivalence.random_inputs(graph)) == 32


@pytest.mark.parametrize("optimized", [False, True])
def test_a_graph_runs_as_it_stands_unless_it_is_asked_otherwise(optimized: bool) -> None:
    """Rewritten by ONNX Runtime, two graphs could look alike that are not."""
    session = equivalence.open_graph(TWICE, optimized=optimized, threads=1)
    level = session.get_session_options().graph_optimization_level
    assert (str(level).rpartition(".")[2] == "ORT_DISABLE_ALL") is not optimized


def test_a_lack_of_memory_is_no_refusal_of_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of a given one nor of random ones."""

    def full(*_: Any, **__: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(equivalence.onnxruntime_session, "call", full)
    graph = Graph(residual_cnn())
    for example in (None, [random_inputs(residual_cnn())[0]]):
        with pytest.raises(MemoryError):
            equivalence.reference(graph, example)
