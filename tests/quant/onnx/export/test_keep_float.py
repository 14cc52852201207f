"""Rules of qbench/quant/onnx/export/keep_float.py: before and behind which layers stands a sum of one."""

from __future__ import annotations

from typing import Any

import pytest
from calibration_models import graph

from qbench.quant.onnx.export import keep_float
from qbench.quant.onnx.graph.graph import Graph

NET = """
<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
net (uint8[n,2,8,8] x, float s, uint8 z, float[n,2,8,8] f) => (uint8[n,2,8,8] y) {
  [in] a = DequantizeLinear (x, s, z)
  %s
}
"""
BEHIND = "[out] y = QuantizeLinear (c, s, z)"


def net(*lines: str, outputs: str = "uint8[n,2,8,8] y") -> Graph:
    """A layer between bytes; lines stand for what is between."""
    text = NET.replace("uint8[n,2,8,8] y", outputs) % "\n  ".join(lines)
    return graph(text, {"w": (2, 2, 1, 1)})


def sums(network: Graph) -> list[tuple[list[str], list[str]]]:
    """What the sums read, and what they make."""
    return [(list(node.input), list(node.output)) for node in network.nodes if node.op_type == "Sum"]


@pytest.mark.parametrize(
    "lines",
    [
        ["[layer] c = Conv (a, w)", BEHIND],
        ["[layer] c = ConvTranspose (a, w)", BEHIND],
        ["[layer] b = Conv (a, w)", "[r] c = Relu (b)", BEHIND],
        ["[layer] b = Conv (a, w)", "[r] d = Clip (b)", "[r2] c = Relu (d)", BEHIND],
        ["[layer] c = Gemm (a, w)", BEHIND],
    ],
)
def test_what_the_runtime_would_quantize_reads_a_sum_of_one(lines: list[str]) -> None:
    """A layer between bytes; the tensor that it read is the only summand."""
    network = net(*lines)
    keep_float.keep_float(network)
    ((inputs, outputs),) = sums(network)
    assert (inputs, outputs) == (["a"], [network.node("layer").input[0]])
    assert outputs != ["a"]


def test_bytes_pass_what_keeps_values() -> None:
    """A pooling before the layer does not hide the bytes from the runtime."""
    network = net(
        "[pool] p = MaxPool <kernel_shape: ints = [1,1]> (a)", "[turn] q = Transpose <perm: ints = [0,1,2,3]> (p)",
        "[layer] c = Conv (q, w)", BEHIND,
    )  # fmt: skip
    keep_float.keep_float(network)
    assert [inputs for inputs, _ in sums(network)] == [["q"]]


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        (["[layer] c = MatMul (a, w)", BEHIND], None),
        (["[layer] c = own.Conv (a, w)", BEHIND], None),
        (["[v] v = Relu (w)", "[layer] c = Conv (a, v)", BEHIND], None),
        (["[e] e = Elu (a)", "[layer] c = Conv (e, w)", BEHIND], None),
        (["[layer] y = Conv (a, w)"], "float[n,2,8,8] y"),
        (["[layer] c = Conv (a, w)", "[e] y = Elu (c)"], "float[n,2,8,8] y"),
        (["[layer] c = Conv (a, w)", "[r] y = Relu (c)"], "float[n,2,8,8] y"),
        (["[layer] c = Conv (a, w)", BEHIND, "[e] u = Elu (c)"], "uint8[n,2,8,8] y, float[n,2,8,8] u"),
        (["[layer] c = Conv (a, w)", "[e] d = Elu (c)", "[out] y = QuantizeLinear (d, s, z)"], None),
    ],
)
def test_what_the_runtime_leaves_float_stays(lines: list[str], outputs: str | None) -> None:
    """Another operator, weights that are computed, and what is not between bytes."""
    network = net(*lines, outputs=outputs or "uint8[n,2,8,8] y")
    before = network.model.SerializeToString(deterministic=True)
    keep_float.keep_float(network)
    assert network.model.SerializeToString(deterministic=True) == before


def test_a_layer_of_an_input_is_no_layer_of_bytes() -> None:
    """Nothing makes what it reads."""
    network = net("[layer] c = Conv (f, w)", BEHIND, outputs="uint8[n,2,8,8] y")
    keep_float.keep_float(network)
    assert sums(network) == []


@pytest.mark.parametrize("names", [("one",), ("one", "two"), ()])
def test_products_are_set_apart_by_a_sum_behind_them(names: tuple[str, ...]) -> None:
    """Each of the named ones alone; who read it reads the sum."""
    network = net("[one] b = Conv (a, w)", "[r] d = Relu (b)", "[two] c = Conv (d, w)", BEHIND)
    before = network.model.SerializeToString(deterministic=True)
    keep_float.set_apart(network, names)
    outputs: dict[str, Any] = {"one": "b", "two": "c"}
    assert [outputs for _, outputs in sums(network)] == [[outputs[name]] for name in names]
    assert [inputs for inputs, _ in sums(network)] == [[network.node(name).output[0]] for name in names]
    assert network.node("r").input[0] == "b"
    assert names or network.model.SerializeToString(deterministic=True) == before
