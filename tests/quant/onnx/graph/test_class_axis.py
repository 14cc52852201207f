"""Rules of qbench/quant/onnx/graph/class_axis.py: where the classes of an output lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.onnx.graph.class_axis import class_axis, usual_axis
from qbench.quant.onnx.graph.graph import Graph


def row(*nodes: tuple[Any, ...], opset: int = 17, **shapes: list[Any]) -> Graph:
    """Nodes behind one another from x to t1, t2, …, each an operator, its further inputs, and its attributes; of
    tensors with these shapes."""
    chain = [
        helper.make_node(kind, [f"t{number}" if number else "x", *more], [f"t{number + 1}"], **attributes)
        for number, (kind, more, attributes) in enumerate(nodes)
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes.get(name)) for name in ("x", f"t{len(nodes)}")
    ]
    known = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    constants = [numpy_helper.from_array(np.ones(1, np.float32), "c")]
    graph = helper.make_graph(chain, "g", ends[:1], ends[1:], constants, value_info=known)
    return Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]))


def node(kind: str, *more: str, **attributes: Any) -> tuple[Any, ...]:
    """An operator."""
    return kind, more, attributes


@pytest.mark.parametrize(
    ("graph", "rank", "axis"),
    [
        (row(node("Softmax", axis=1)), 4, 1),
        (row(node("Softmax", axis=-2)), 4, 2),
        (row(node("Softmax")), 4, 3),
        (row(node("Softmax"), opset=12), 4, 1),
        (row(node("LogSoftmax", axis=2)), 3, 2),
        (row(node("MatMul", "c")), 4, 3),
        (row(node("Gemm", "c")), 2, 1),
        (row(node("LSTM", "c", "c")), 4, 3),
        (row(node("Conv", "c")), 4, 1),
        (row(node("Conv", "c")), 3, 1),
        (row(node("MatMul", "c"), node("Relu"), node("Add", "c")), 4, 3),
        (row(node("MatMul", "c"), node("ReduceMean")), 4, 1),
        (row(node("Relu")), 4, 1),
        (row(node("Relu")), 3, 2),
        (row(node("Conv", "c"), node("Transpose", perm=[0, 2, 3, 1])), 4, 3),
        (row(node("MatMul", "c"), node("Transpose", perm=[0, 3, 1, 2])), 4, 1),
        (row(node("MatMul", "c"), node("Transpose")), 4, 0),
        (row(node("MatMul", "c"), node("Transpose", perm=[0, 2, 1])), 4, 1),
        (row(node("Relu"), node("Transpose", perm=[1, 0, 2])), 3, 2),
        (row(*[node("MatMul", "c")], *[node("Relu")] * 199), 4, 3),
        (row(*[node("MatMul", "c")], *[node("Relu")] * 200), 4, 1),
    ],
)
def test_the_last_node_that_tells_decides(graph: Graph, rank: int, axis: int) -> None:
    """A Softmax by its axis, a product by its last, a convolution by its second; through what keeps values in place,
    however they are turned. Where nothing tells, the last of three, and otherwise the second."""
    assert class_axis(graph, graph.outputs[0], rank) == axis


@pytest.mark.parametrize(
    ("before", "after", "kind", "axis"),
    [
        ([2, 5, 10], [2, 50, 1, 10], "MatMul", 3),
        ([2, 5, 10], [10, 10], "MatMul", 1),
        ([2, 5, 10], [2, 10, 5], "MatMul", 2),
        ([2, 5, "n"], [2, "n", 5, 1], "MatMul", 1),
        ([2, 10, 4, 4], [2, 10], "Conv", 1),
        ([2, 10, 4, 4], [2, 10, 16], "Conv", 1),
        ([2, 10, 4, 4], [2, 10, 4, 4], "Conv", 1),
        ([2, 10, 4, 4], [3, 10, 16], "Conv", 1),
        ([2, 10, 4, 4], [2, 4, 40], "Conv", 2),
        ([2, 10, 4, 4], [2, 4, 10, 4], "Conv", 1),
        ([2, 10, 4, 4], [10, 4, 4], "Conv", 2),
        ([2, 5, 10], [2, 5, 10, 1], "MatMul", 2),
    ],
)
def test_a_change_of_shape_keeps_an_axis_that_keeps_its_size(
    before: list[Any], after: list[Any], kind: str, axis: int
) -> None:
    """At its place from the end or from the front; else nothing tells."""
    graph = row(node(kind, "c"), node("Reshape", "c"), t1=before, t2=after)
    assert class_axis(graph, "t2", len(after)) == axis


def test_a_change_of_shape_whose_sizes_nobody_tells_tells_nothing() -> None:
    """Nor one to another number of axes than is asked for."""
    assert class_axis(row(node("MatMul", "c"), node("Flatten")), "t2", 2) == usual_axis(2) == 1
    for shapes in ({"t1": [2, 3, 4, 5]}, {"t2": [2, 3, 4, 5]}, {"t1": [2, 3, "n"], "t2": [2, 3, "n"]}):
        half = row(node("MatMul", "c"), node("Flatten"), **shapes)
        assert class_axis(half, "t2", 4) == 1
    known = row(node("MatMul", "c"), node("Flatten"), t1=[2, 3, 4, 5], t2=[2, 60])
    assert class_axis(known, "t2", 4) == usual_axis(4) == 1
    assert usual_axis(3) == 2


def test_of_two_branches_the_first_that_tells_decides() -> None:
    """A constant tells nothing."""
    nodes = [
        helper.make_node("Abs", ["x"], ["nothing"]),
        helper.make_node("ReduceMean", ["nothing"], ["mean"]),
        helper.make_node("MatMul", ["x", "c"], ["product"]),
        helper.make_node("Add", ["mean", "product"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    network = Graph(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:])))
    assert class_axis(network, "y", 4) == 3
