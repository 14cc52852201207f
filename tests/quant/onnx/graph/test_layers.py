"""Which layers can be quantized, and the reason of each that cannot."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx_networks import NETWORKS, Draft, save

from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import layers
from qbench.quant.onnx.graph.prepare import infer_shapes, prepare


def list_layers(name, tmp_path):
    return {layer.name: layer for layer in layers(prepare(save(NETWORKS[name](), tmp_path)))}


def list_as_it_stands(draft, inputs, outputs, *, opset=17):
    """The layers of a graph as it stands, shapes inferred."""
    graph = Graph(draft.model(inputs, outputs, opset=opset))
    infer_shapes(graph)
    return {layer.name: layer for layer in layers(graph)}


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("residual_cnn", {"conv1": "layer", "conv2": "layer", "conv3": "layer", "fc": "layer", "add": "tensor",
                          "maxpool": "tensor"}),
        ("depthwise", {"stem_conv": "layer", "expand_conv": "layer", "depthwise_conv": "layer",
                       "project_conv": "layer", "avgpool": "layer", "classifier": "layer"}),
        ("decoder", {"up": "layer", "out": "layer"}),
        ("mlp", {"first": "layer", "second": "layer", "third": "layer"}),
        ("tokens", {"query": "layer", "fc": "layer"}),
        ("volume", {"conv1": "layer", "conv2": "layer"}),
        ("signal", {"conv": "layer", "fc": "layer"}),
        ("pools", {"conv": "layer", "max": "tensor", "average": "layer", "sum": "tensor", "last": "layer"}),
        ("branches", {"conv": "layer", "last": "layer"}),
        ("loop", {"fc": "layer"}),
    ],
)  # fmt: skip
def test_what_can_be_quantized(network, expected, tmp_path):
    """Layers by input and weight, MaxPool and Add by tensor; nothing else."""
    assert {
        name: entry.kind for name, entry in list_layers(network, tmp_path).items() if entry.reason is None
    } == expected


@pytest.mark.parametrize(
    ("network", "layer", "reason"),
    [
        ("tokens", "scores", "its weight is not constant"),
        ("tokens", "lstm", "LSTM stays float"),
        ("mlp", "bias", "adds a constant (first.bias)"),
        ("pools", "shape_sum", "its input is int64, only float32 is quantized"),
        ("branches", "if/then_branch/then_conv", "inside a subgraph of if (If), which stays float: "
         "which branch runs follows from input image"),
        ("loop", "loop/body/step", "inside a subgraph of loop (Loop), which stays float"),
    ],
)  # fmt: skip
def test_why_a_layer_stays_float(network, layer, reason, tmp_path):
    """Every node that stays float tells why."""
    assert list_layers(network, tmp_path)[layer].reason == reason


def test_every_node_is_listed_once(tmp_path):
    """In the order of the graph, those of subgraphs behind their node."""
    for name in NETWORKS:
        graph = prepare(save(NETWORKS[name](), tmp_path))
        listed = [layer.name for layer in layers(graph)]
        assert len(set(listed)) == len(listed)
        top = [node.name for node in graph.nodes]
        assert [row for row in listed if row in top] == top


GEMM_RULE = "only transA = 0 is quantized, and alpha or beta beside 1 where they can be taken into constants"


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"transA": 1}, f"transA = 1: {GEMM_RULE}"),
        ({"alpha": 0.5, "beta": 2.0}, f"alpha = 0.5, beta = 2: {GEMM_RULE}"),
        ({"transB": 1}, None),
    ],
)
def test_constraints_of_gemm(attributes, reason):
    """transA = 0; alpha and beta as far as they are left once constants took them; transB is free."""
    draft = Draft()
    draft.add("Gemm", ["x", draft.weight("w", 4, 4), draft.bias("b", 4)], "fc", outputs=["y"], **attributes)
    assert list_as_it_stands(draft, {"x": [4, 4]}, {"y": [4, 4]})["fc"].reason == reason


@pytest.mark.parametrize(
    ("weight", "reason"),
    [
        (np.ones((4, 4), np.float64), "its weight is float64, only float32 is quantized"),
        (np.ones((2, 4, 4), np.float32), "its weight has 3 dimensions, only 2 are quantized"),
        (np.full((4, 4), np.nan, np.float32), "its weight holds NaN or inf"),
        (np.ones((4, 0), np.float32), "its weight is empty"),
    ],
)
def test_constraints_of_a_weight(weight, reason):
    """float32, two dimensions for MatMul, finite."""
    draft = Draft()
    draft.add("MatMul", ["x", draft.constant("w", weight)], "mm", outputs=["y"])
    kind = helper.np_dtype_to_tensor_dtype(weight.dtype)
    assert (
        list_as_it_stands(draft, {"x": (kind, [2, 2, 4])}, {"y": (kind, [2, 2, weight.shape[-1]])})["mm"].reason
        == reason
    )


def test_a_constant_first_operand_is_no_weight():
    """MatMul(W, x) tells that its constant is the first input."""
    draft = Draft()
    draft.add("MatMul", [draft.weight("w", 4, 4), "x"], "mm", outputs=["y"])
    assert "the first input" in list_as_it_stands(draft, {"x": [4, 4]}, {"y": [4, 4]})["mm"].reason


def test_a_bias_that_is_computed_keeps_its_layer_float():
    """An int32 bias is made from a constant."""
    draft = Draft()
    bias = draft.add("Relu", ["b"], "relu")
    draft.add("Gemm", ["x", draft.weight("w", 4, 4), bias], "fc", outputs=["y"])
    assert list_as_it_stands(draft, {"x": [4, 4], "b": [4]}, {"y": [4, 4]})["fc"].reason == "its bias is not constant"


@pytest.mark.parametrize(("operator", "rank"), [("AveragePool", 3), ("MaxPool", 5), ("AveragePool", 5)])
def test_pools_take_four_dimensions(operator, rank):
    """A 1-D or 3-D pool stays float."""
    draft = Draft()
    draft.add(operator, ["x"], "pool", outputs=["y"], kernel_shape=[2] * (rank - 2))
    shape = [1, 2, *[4] * (rank - 2)]
    layer = list_as_it_stands(draft, {"x": shape}, {"y": [1, 2, *[3] * (rank - 2)]})["pool"]
    assert layer.reason == f"its input has {rank} dimensions, only 4 are quantized"


def test_operators_of_other_domains_stay_float():
    """A vendor's Conv is not the standard one."""
    draft = Draft()
    draft.nodes.append(helper.make_node("Conv", ["x"], ["y"], name="theirs", domain="vendor"))
    graph = Graph(helper.make_model(helper.make_graph(draft.nodes, "g", [], [])))
    (layer,) = layers(graph)
    assert (layer.kind, layer.reason) == ("other", "vendor.Conv stays float")


def test_what_is_the_same_for_every_example_stays_float():
    """Learned queries, spread over the batch: only its size comes from the input. What such a part meets later is as
    any other. OpenVINO does not load such a layer in int8."""
    draft = Draft()
    queries = draft.constant("queries", draft.rng.standard_normal((1, 5, 8)).astype(np.float32))
    shape = draft.add("Shape", ["image"], "shape")
    batch = draft.add("Slice", [shape, draft.constant("from", [0]), draft.constant("to", [1])], "batch")
    target = draft.add("Concat", [batch, draft.constant("rest", [5, 8])], "target", axis=0)
    spread = draft.add("Expand", [queries, target], "expand")
    fixed = draft.add("MatMul", [spread, draft.weight("w", 8, 8)], "fixed")
    varying = draft.add("MatMul", ["image", draft.weight("v", 8, 8)], "varying")
    both = draft.add("Add", [fixed, varying], "both")
    output = draft.add("MatMul", [both, draft.weight("u", 8, 8)], "last")
    listed = list_as_it_stands(draft, {"image": ["n", 5, 8]}, {output: ["n", 5, 8]})
    assert listed["fixed"].reason == "what it reads is the same for every example"
    assert [listed[name].reason for name in ("varying", "both", "last")] == [None, None, None]


def test_what_a_logarithm_is_taken_of_stays_float():
    """The filters of a spectrogram inside a network; what reads the logarithm is as any other layer."""
    draft = Draft()
    filtered = draft.add("MatMul", ["sound", draft.weight("w", 8, 8)], "filters")
    power = draft.add("Mul", [filtered, filtered], "power")
    level = draft.add("Log", [draft.add("Add", [power, draft.constant("floor", np.float32(1e-6))], "finite")], "level")
    output = draft.add("MatMul", [level, draft.weight("v", 8, 8)], "last")
    listed = list_as_it_stands(draft, {"sound": ["n", 8]}, {output: ["n", 8]})
    assert listed["filters"].reason == (
        "a logarithm of its output follows, which makes much of the small values that int8 rounds"
    )
    assert listed["last"].reason is None
