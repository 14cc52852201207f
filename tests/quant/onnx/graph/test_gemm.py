"""Rules of qbench/quant/onnx/graph/gemm.py and pads.py: what a layer takes into its constants and its own pads."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from qbench.quant.onnx.graph import gemm, pads
from qbench.quant.onnx.graph.graph import Graph

RNG = np.random.default_rng(0)


def build(nodes: list[onnx.NodeProto], shape: list[int], **constants: Any) -> Graph:
    """A graph from x to y."""
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]  # fmt: skip
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], held)
    return Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


def answer(graph: Graph, shape: list[int]) -> Any:
    """What a graph gives."""
    x = np.random.default_rng(1).random(shape, dtype=np.float32)
    return ReferenceEvaluator(graph.model).run(None, {"x": x})[0]


def attributes(node: onnx.NodeProto) -> set[str]:
    """Their names."""
    return {attribute.name for attribute in node.attribute}


@pytest.mark.parametrize(
    ("given", "bias", "left", "shape"),
    [
        ({}, None, set(), None),
        ({}, (5,), set(), (5,)),
        ({"transB": 1}, (5,), set(), (5,)),
        ({"alpha": 2.0}, (5,), set(), (5,)),
        ({"transB": 1, "alpha": 0.5, "beta": 2.0}, (5,), set(), (5,)),
        ({"beta": 3.0}, None, set(), None),
        ({"beta": 3.0}, (1, 5), set(), (5,)),
        ({}, (1,), set(), (5,)),
        ({}, (), set(), (5,)),
        ({"beta": 3.0}, (2, 5), {"beta"}, (2, 5)),
        ({"beta": 1.0}, (5,), set(), (5,)),
        ({"transA": 0, "alpha": 2.0}, (5,), {"transA"}, (5,)),
        ({"alpha": 1.0}, (5,), {"alpha"}, (5,)),
    ],
)
def test_a_gemm_has_its_numbers_in_its_constants(given: Any, bias: Any, left: set[str], shape: Any) -> None:
    """The weight (in, out) times alpha, the bias (out,) times beta; a bias of rows stays, and so does what it gives."""
    weight = RNG.random((5, 3) if given.get("transB") else (3, 5), dtype=np.float32)
    held = {} if bias is None else {"b": RNG.random(bias, dtype=np.float32)}
    node = helper.make_node("Gemm", ["x", "w", *held], ["y"], name="fc", **given)
    graph = build([node], [2, 3], w=weight, **held)
    expected = answer(graph, [2, 3])
    gemm.normalise(graph)
    (node,) = graph.nodes
    assert attributes(node) == left
    assert graph.constant(node.input[1]).shape == (3, 5)
    assert (graph.constant(node.input[2]).shape if shape is not None else len(node.input)) == (shape or 2)
    assert [reader for reader, _ in graph.readers(node.input[1])] == [node]
    if bias == (5,) and given.get("beta", 1.0) == 1.0:
        assert node.input[2] == "b", "it fits as it is"
    np.testing.assert_allclose(answer(graph, [2, 3]), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["computed weight", "float64", "another domain"])
def test_a_gemm_that_cannot_be_written_anew_stays(kind: str) -> None:
    """Where the weight is no constant of float32, or the operator somebody else's."""
    node = helper.make_node("Gemm", ["x", "x" if kind == "computed weight" else "w"], ["y"], transB=1, alpha=2.0)
    node.domain = "mine" if kind == "another domain" else ""
    graph = build([node], [3, 3], w=np.ones((5, 3), np.float64 if kind == "float64" else np.float32))
    before = graph.model.SerializeToString()
    gemm.normalise(graph)
    assert graph.model.SerializeToString() == before


def test_a_bias_that_is_computed_keeps_its_beta() -> None:
    """The weight is written anew all the same."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], keepdims=0),
        helper.make_node("Gemm", ["x", "w", "m"], ["y"], transB=1, beta=2.0),
    ]
    graph = build(nodes, [2, 3], w=RNG.random((5, 3), dtype=np.float32))
    expected = answer(graph, [2, 3])
    gemm.normalise(graph)
    assert attributes(graph.nodes[1]) == {"beta"}
    np.testing.assert_allclose(answer(graph, [2, 3]), expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2,), (0,), (1, 4)])
def test_a_bias_that_fits_no_output_stays(shape: tuple[int, ...]) -> None:
    """A file may say so; who runs it says what is wrong."""
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], beta=2.0)
    graph = build([node], [2, 3], w=np.ones((3, 5), np.float32), b=np.ones(shape, np.float32))
    before = graph.model.SerializeToString()
    gemm.normalise(graph)
    assert graph.model.SerializeToString() == before


@pytest.mark.parametrize("shape", [(4,), (4, 4)])
def test_a_padding_before_a_weight_without_sides_is_no_error(shape: tuple[int, ...]) -> None:
    """A file may say so; who runs it says what is wrong."""
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["padded"], name="pad"),
        helper.make_node("Conv", ["padded", "w"], ["y"], name="conv"),
    ]
    graph = build(nodes, [2] * len(shape), w=np.ones(shape, np.float32), p=np.zeros(2 * len(shape), np.int64))
    assert pads.take_in(graph) == ()


@pytest.mark.parametrize("name", ["conv", "pad"])
def test_a_padding_that_is_to_stay_stays(name: str) -> None:
    """By its own name or its layer's; one that others read, too, stays for these."""
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["padded"], name="pad"),
        helper.make_node("Conv", ["padded", "w"], ["y"], name="conv"),
        helper.make_node("Abs", ["padded"], ["z"], name="abs"),
    ]
    held = {"w": np.ones((1, 1, 1, 1), np.float32), "p": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    graph = build(nodes, [1, 1, 5, 5], **held)
    graph.model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    graph.reindex()
    assert pads.take_in(graph, [name]) == ()
    expected = answer(graph, [1, 1, 5, 5])
    assert pads.take_in(graph) == (("conv", "pad"),)
    assert [node.name for node in graph.nodes] == ["pad", "conv", "abs"]
    np.testing.assert_allclose(answer(graph, [1, 1, 5, 5]), expected)
