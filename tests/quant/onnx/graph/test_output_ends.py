"""Rules of qbench/quant/onnx/graph/output_ends.py: which outputs the caller reads through a node of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from qbench.quant.onnx.graph import output_ends
from qbench.quant.onnx.graph.graph import Graph


def build(body: str, output: str = "float[1,2,4,4] y", more: str = "") -> Graph:
    """A graph whose output is y."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    g (float[1,2,4,4] x, bool c) => ({output}{more}) {{ {body} }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((2, 2, 1, 1), np.float32), "w"))
    return Graph(onnx.shape_inference.infer_shapes(model))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Conv (x, w)", True),
        ("y = ConvTranspose (x, w)", True),
        ("y = MaxPool <kernel_shape: ints = [1,1]> (x)", True),
        ("y = Add (x, x)", True),
        ("a = Conv (x, w) y = Relu (a)", True),
        ("a = Conv (x, w) b = Relu (a) y = Clip (b)", True),
        ("a = Conv (x, w) b = Sigmoid (a) y = Relu (b)", False),
        ("y = Relu (x)", False),
        ("y = AveragePool <kernel_shape: ints = [1,1]> (x)", False),
        ("y = own.Conv (x, w)", False),
        ("a = Conv (x, w) y = own.Relu (a)", False),
    ],
)
def test_an_output_of_a_layer_has_a_reader_of_its_own(body: str, expected: bool) -> None:
    """Through a ReLU or Clip; the output keeps its name, and whoever else reads it reads the layer."""
    graph = build(f"{body} z = Neg (y)", more=", float[1,2,4,4] z")
    count = len(graph.nodes)
    output_ends.give_readers(graph)
    readers = [node for node in graph.nodes if output_ends.is_caller(node)]
    assert graph.outputs == ("y", "z")
    assert len(graph.nodes) == count + expected
    assert [(node.input[0], node.output[0], node.name) for node in readers] == (
        [("y_inner", "y", "graph_output_y")] if expected else []
    )
    assert graph.maker("z").input[0] == ("y_inner" if expected else "y")


def test_what_is_no_float_or_is_read_in_a_branch_stays() -> None:
    """Doubles, and what a subgraph takes from outside."""
    assert not output_ends.from_layer(build("d = Cast <to: int = 11> (x) y = Add (d, d)", "double[1,2,4,4] y"), "y")
    both = ((name, f"{name} () => (float[1,2,4,4] {name}_y) {{ {name}_y = Neg (y) }}") for name in ("then", "else"))
    branches = ", ".join(f"{name}_branch = {branch}" for name, branch in both)
    graph = build(f"y = Add (x, x) z = If <{branches}> (c)", more=", float[1,2,4,4] z")
    assert not output_ends.from_layer(graph, "y")
    assert not output_ends.from_layer(graph, "x")


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [("Identity", "graph_output_y", True), ("Identity", "other", False), ("Relu", "graph_output_y", False)],
)
def test_such_a_node_is_told_by_its_kind_and_name(kind: str, name: str, expected: bool) -> None:
    """Neither alone is enough, and what is no node is none."""
    node: Any = SimpleNamespace(op_type=kind, name=name)
    assert output_ends.is_caller(node) is expected
    assert not output_ends.is_caller(object())
