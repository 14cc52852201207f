"""Rules of qbench/quant/onnx/graph/fp16.py: a model of 16-bit floats computes in float32, its ends as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from qbench.quant.onnx.graph import fp16
from qbench.quant.onnx.graph.graph import Graph

HALF, FLOAT, BFLOAT = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.BFLOAT16
node = helper.make_node
W = np.array([1.5, -2.0], np.float16)


def build(nodes: list[onnx.NodeProto], x: int = HALF, y: int = HALF, **constants: Any) -> Graph:
    """A graph from x to y of these types."""
    ends = [helper.make_tensor_value_info(name, kind, [2]) for name, kind in (("x", x), ("y", y))]
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    return Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


def run(graph: Graph, kind: Any = np.float16) -> Any:
    """What a graph gives."""
    return ReferenceEvaluator(graph.model).run(None, {"x": np.array([3.0, 0.25], kind)})[0]


def branch(*nodes: onnx.NodeProto, **constants: Any) -> onnx.GraphProto:
    """A subgraph that gives b."""
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return helper.make_graph([*nodes], "b", [], [helper.make_tensor_value_info("b", 0, None)], held)


@pytest.mark.parametrize(
    ("graph", "half"),
    [
        (build([node("Abs", ["x"], ["y"])]), True),
        (build([node("Abs", ["x"], ["y"])], BFLOAT, BFLOAT), True),
        (build([node("Abs", ["x"], ["y"])], FLOAT, FLOAT), False),
        (build([node("Abs", ["x"], ["y"])], FLOAT, HALF), True),
        (build([node("Mul", ["x", "w"], ["y"])], FLOAT, FLOAT, w=W), True),
        (build([node("Mul", ["x", "w"], ["y"])], FLOAT, FLOAT, w=W.astype(np.float32)), False),
        (build([node("Cast", ["x"], ["c"], to=HALF), node("Cast", ["c"], ["y"], to=FLOAT)], FLOAT, FLOAT), True),
        (build([node("Cast", ["x"], ["y"], to=FLOAT)], FLOAT, FLOAT), False),
        (build([node("Cast", ["x"], ["y"], to=FLOAT, axis=HALF)], FLOAT, FLOAT), False),
        (build([node("RandomNormalLike", ["x"], ["y"], dtype=BFLOAT)], FLOAT, FLOAT), True),
        (build([node("Constant", [], ["y"], value=numpy_helper.from_array(W))], FLOAT, FLOAT), True),
        (build([node("Constant", [], ["y"], value=numpy_helper.from_array(np.ones(2, np.float32)))], FLOAT, FLOAT),
         False),
        (build([node("If", ["c"], ["y"], then_branch=branch(), else_branch=branch(node("Abs", ["x"], ["b"]), w=W))],
               FLOAT, FLOAT), True),
        (build([node("If", ["c"], ["y"], then_branch=branch(), else_branch=branch(node("Abs", ["x"], ["b"])))],
               FLOAT, FLOAT), False),
    ],
)  # fmt: skip
def test_a_model_is_half_where_anything_in_it_is(graph: Graph, half: bool) -> None:
    """An end, a constant, or a type that a node makes, also in a subgraph."""
    assert fp16.is_half(graph) == half


@pytest.mark.parametrize(
    ("nodes", "kinds"),
    [
        ([node("Mul", ["x", "w"], ["y"])], ["Cast", "Mul", "Cast"]),
        ([node("Cast", ["x"], ["f"], to=FLOAT), node("Abs", ["f"], ["a"]), node("Cast", ["a"], ["y"], to=HALF)],
         ["Cast", "Abs", "Cast"]),
        ([node("Cast", ["x"], ["f"], to=FLOAT), node("Abs", ["x"], ["a"]), node("Cast", ["f"], ["h"], to=HALF),
          node("Add", ["a", "h"], ["y"])], ["Cast", "Cast", "Abs", "Cast", "Add", "Cast"]),
        ([node("Cast", ["x"], ["h"], to=HALF), node("Abs", ["h"], ["y"])], ["Cast", "Cast", "Abs", "Cast"]),
        ([node("Constant", [], ["c"], value=numpy_helper.from_array(W)), node("Mul", ["x", "c"], ["y"])],
         ["Cast", "Constant", "Mul", "Cast"]),
    ],
)  # fmt: skip
def test_a_model_is_widened_between_its_ends(nodes: list[onnx.NodeProto], kinds: list[str]) -> None:
    """Inputs and outputs stay of 16 bits, and a Cast that is there already is not doubled; all between is float32."""
    graph = build(nodes, w=W)
    expected = run(graph)
    fp16.widen(graph)
    assert sorted(each.op_type for each in graph.nodes) == sorted(kinds)
    assert [value.type.tensor_type.elem_type for value in (*graph.model.graph.input, *graph.model.graph.output)] == (
        [HALF, HALF]
    )
    assert not any(tensor.data_type in fp16.HALF for tensor in graph.model.graph.initializer)
    actual = run(graph)
    assert actual.dtype == np.float16
    np.testing.assert_array_equal(actual, expected)


def test_an_output_that_others_read_too_keeps_its_cast_for_them() -> None:
    """Its own comes behind it."""
    graph = build(
        [node("Cast", ["x"], ["f"], to=FLOAT), node("Cast", ["f"], ["y"], to=HALF), node("Abs", ["y"], ["z"])]
    )
    graph.model.graph.output.append(helper.make_tensor_value_info("z", HALF, [2]))
    graph.reindex()
    expected = run(graph)
    fp16.widen(graph)
    np.testing.assert_array_equal(run(graph), expected)
    assert {value.name for value in graph.model.graph.output} == {"y", "z"}


def test_a_model_for_whoever_gives_float32_is_widened_whole() -> None:
    """Also its ends."""
    graph = build([node("Mul", ["x", "w"], ["y"])], w=W)
    fp16.widen_whole(graph)
    assert not fp16.is_half(graph)
    assert [each.op_type for each in graph.nodes] == ["Mul"]
    np.testing.assert_array_equal(run(graph, np.float32), np.array([4.5, -0.5], np.float32))


def test_names_change_in_subgraphs_where_these_mean_the_outer_tensor() -> None:
    """One that a subgraph makes, holds or takes itself is another."""
    inner = [
        branch(node("Abs", ["x"], ["b"])),
        branch(node("Neg", ["k"], ["x"]), node("Abs", ["x"], ["b"])),
        branch(node("Abs", ["x"], ["b"]), x=W),
    ]
    taken = branch(node("Abs", ["x"], ["b"]))
    taken.input.append(helper.make_tensor_value_info("x", FLOAT, None))
    body = helper.make_graph(
        [node("Mine", ["x", "k"], ["y"], bodies=[*inner, taken])],
        "g",
        [],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    fp16.rename(body, {"x": "wide", "b": "wide_b"})
    bodies = body.node[0].attribute[0].graphs
    assert body.node[0].input[0] == "wide"
    assert [each.node[-1].input[0] for each in bodies] == ["wide", "x", "x", "x"]
    assert [each.output[0].name for each in bodies] == ["b"] * 4
