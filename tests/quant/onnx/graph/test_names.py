"""Rules of qbench/quant/onnx/graph/names.py: every node has a name of its own."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from qbench.quant.onnx.graph import names
from qbench.quant.onnx.graph.graph import Graph


def graph(*given: str) -> Graph:
    """A chain of operators by turns Relu and Abs, with these names."""
    nodes = [
        helper.make_node(("Relu", "Abs")[i % 2], [f"t{i}"], [f"t{i + 1}"], name=name) for i, name in enumerate(given)
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("t0", f"t{len(given)}")]
    return Graph(helper.make_model(helper.make_graph(nodes, "net", ends[:1], ends[1:])))


@pytest.mark.parametrize(
    ("given", "result", "new"),
    [
        (("a", "b"), ("a", "b"), {}),
        (("", "b", ""), ("Relu_0", "b", "Relu_2"), {"Relu_0": "", "Relu_2": ""}),
        (("a", "a", "a"), ("a", "a_1", "a_2"), {"a_1": "a", "a_2": "a"}),
        (("a", "a", "a_1"), ("a", "a_2", "a_1"), {"a_2": "a"}),  # a name that comes later is taken, too
        (("", "Relu_0"), ("Relu_0_1", "Relu_0"), {"Relu_0_1": ""}),
        (("a", "", "Abs_1", "a"), ("a", "Abs_1_1", "Abs_1", "a_1"), {"Abs_1_1": "", "a_1": "a"}),
    ],
)
def test_nodes_without_a_name_of_their_own_get_one(
    given: tuple[str, ...], result: tuple[str, ...], new: dict[str, str]
) -> None:
    """By operator and place, or with a number behind; the first of several keeps it. The graph finds them by it."""
    network = graph(*given)
    assert names.give(network) == new
    assert tuple(node.name for node in network.nodes) == result
    assert all(network.node(name).output[0] == f"t{i + 1}" for i, name in enumerate(result))
    assert network.fresh(result[-1]) != result[-1]
