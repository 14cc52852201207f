"""Rules of qbench/quant/onnx/export/upsampling.py: which transposed convolutions become convolutions, and how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from quantized_networks import run

from qbench.quant.onnx.export import upsampling
from qbench.quant.onnx.graph.graph import Graph


def network(
    *,
    window: tuple[int, ...] = (2, 3),
    bias: bool = True,
    per_channel: bool = True,
    out: list[Any] | None = None,
    readers: int = 1,
    output: bool = False,
    last: str = "QuantizeLinear",
    fp32_weight: bool = False,
    domain: str = "",
    kind: str = "ConvTranspose",
    **attributes: Any,
) -> Graph:
    """A quantized layer of 3 channels to 2 over images of 4 x 5 (or signals of 4), between bytes."""
    random, axes, nodes, tensors = np.random.default_rng(0), len(window), [], []

    def constant(name: str, value: Any) -> str:
        tensors.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    groups = attributes.get("group", 1)
    shape = (3 if groups == 1 else 4, 2, *window)
    constant("w", random.integers(-127, 128, shape).astype(np.int8))
    scales = np.float32([0.01, 0.02]) if per_channel else np.float32(0.01)
    constant("ws", scales)
    constant("wz", np.zeros_like(scales, np.int8))
    constant("s", np.float32(0.05))
    constant("z", np.uint8(120))
    along = {"axis": 1} if per_channel else {}
    nodes.append(helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"], name="in"))
    if fp32_weight:
        constant("wf", random.normal(size=shape).astype(np.float32))
    else:
        nodes.append(helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], name="weight", **along))
    inputs = ["xf", "wf"]
    if bias:
        constant("b", random.integers(-900, 900, 2 * groups).astype(np.int32))
        constant("bs", np.resize(scales * np.float32(0.05), 2 * groups) if per_channel else scales * np.float32(0.05))
        constant("bz", np.zeros(2 * groups, np.int32) if per_channel else np.int32(0))
        biases = {"axis": 0} if per_channel else {}
        nodes.append(helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"], name="bias", **biases))
        inputs.append("bf")
    given = {"strides": list(window), "kernel_shape": list(window)} | attributes
    given = {name: value for name, value in given.items() if value is not None}
    nodes.append(helper.make_node(kind, inputs, ["t"], name="up", domain=domain, **given))
    constant("ys", np.float32(0.2))
    constant("yz", np.uint8(128))
    for number in range(readers):
        operands = ["t", "ys", "yz"] if last == "QuantizeLinear" else ["t"]
        nodes.append(helper.make_node(last, operands, ["y" if not number else f"y{number}"], name=f"q{number}"))
    sizes = [4, 5, 6][:axes]
    if out is None:
        out = ["n", 2 * groups, *(size * by for size, by in zip(sizes, window, strict=True))]
    kinds = TensorProto.UINT8 if last == "QuantizeLinear" else TensorProto.FLOAT
    outputs = [helper.make_tensor_value_info("y", kinds, [None] * (2 + axes))]
    told = helper.make_tensor_value_info("t", TensorProto.FLOAT, out)
    outputs += [told] if output else []
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["n", shape[0], *sizes])],
        outputs,
        tensors,
        value_info=[] if output else [told],
    )
    return Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def pixels() -> dict[str, Any]:
    """Three images."""
    return {"x": np.random.default_rng(1).integers(0, 256, (3, 3, 4, 5)).astype(np.uint8)}


def kinds(graph: Graph) -> list[str]:
    """The operators in their order."""
    return [node.op_type for node in graph.nodes]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bias": False},
        {"per_channel": False},
        {"window": (2, 2)},
        {"window": (3, 1)},
        {"dilations": [1, 1], "pads": [0, 0, 0, 0], "output_padding": [0, 0], "group": 1, "auto_pad": "NOTSET"},
    ],
)
def test_the_convolution_gives_the_same_bytes(changes: dict[str, Any]) -> None:
    """Of any window whose places lie side by side; the layer keeps its name, and nothing of the old one is left."""
    before, after = network(**changes), network(**changes)
    upsampling.as_convolutions(after)
    assert "ConvTranspose" not in kinds(after)
    assert after.node("up").op_type == "Conv"
    assert np.array_equal(run(after, pixels(), optimized=False)[0], run(before, pixels(), optimized=False)[0])
    assert not {"w", "ws", "wz", "b"} & set(after.constants)
    assert kinds(after)[-6:] == ["QuantizeLinear", "Transpose", "Reshape", "Transpose", "Reshape", "Transpose"]
    assert len({node.name for node in after.nodes}) == len(after.nodes)


@pytest.mark.parametrize(
    "changes",
    [
        {"strides": [1, 1]},
        {"strides": None},
        {"strides": [3, 2]},
        {"pads": [0, 1, 0, 0]},
        {"output_padding": [0, 1]},
        {"output_shape": [8, 15]},
        {"dilations": [1, 2]},
        {"auto_pad": "SAME_UPPER"},
        {"group": 2},
        {"window": (2,)},
        {"window": (2, 2, 2)},
        {"out": ["n", 2, "h", 15]},
        {"out": ["n", 2, 8, None]},
        {"out": ["n", 2, 8]},
        {"out": ["n", 2, 8, 0]},
        {"readers": 2},
        {"output": True},
        {"last": "Relu"},
        {"fp32_weight": True},
        {"domain": "own"},
        {"kind": "Conv"},
    ],
    ids=str,
)
def test_any_other_layer_stays(changes: dict[str, Any]) -> None:
    """Windows that overlap or leave gaps, sizes that are not known, an output that others read as floats."""
    graph = network(**changes)
    before = graph.model.SerializeToString(deterministic=True)
    upsampling.as_convolutions(graph)
    assert graph.model.SerializeToString(deterministic=True) == before


def test_a_window_of_one_place_needs_no_strides() -> None:
    """The default of a stride is one."""
    graph = network(window=(1, 1), strides=None)
    upsampling.as_convolutions(graph)
    assert graph.node("up").op_type == "Conv"
