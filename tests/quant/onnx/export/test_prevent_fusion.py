"""Rules of qbench/quant/onnx/export/prevent_fusion.py: which sums are written in another way."""

from __future__ import annotations

import numpy as np
import pytest
from calibration_models import graph

from qbench.quant.onnx.export import prevent_fusion
from qbench.quant.onnx.graph.graph import Graph

NET = """
<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
net (float[n,2] x, float[n,2] u) => (float[n,2] y) {
  %s
}
"""
CONSTANTS = {
    "w": np.float32([1, 2]), "b": np.float32([5, -6]), "scale": np.float32(1), "zero": np.uint8(0),
}  # fmt: skip
GELU, NORM = "[g] y = Gelu (a)", "[n] y = LayerNormalization (a, w)"


def changed(*lines: str) -> tuple[Graph, Graph]:
    """A graph before and after."""
    before, after = (graph(NET % "\n  ".join(lines), CONSTANTS) for _ in range(2))
    prevent_fusion.keep_apart(after)
    return before, after


def test_a_sum_before_a_norm_is_a_sum_of_two() -> None:
    """Of two activations, with a reader beside the norm, too."""
    for lines in (["[add] a = Add (x, u)", NORM], ["[add] a = Add (x, u)", "[r] q = Relu (a)", NORM]):
        _, after = changed(*lines)
        assert (after.node("add").op_type, list(after.node("add").input)) == ("Sum", ["x", "u"])


@pytest.mark.parametrize("operands", ["x, b", "b, x"])
def test_a_bias_before_a_gelu_is_subtracted_negated(operands: str) -> None:
    """On either side; the bias that was is gone."""
    _, after = changed(f"[add] a = Add ({operands})", GELU)
    node = after.node("add")
    assert (node.op_type, node.input[0]) == ("Sub", "x")
    np.testing.assert_array_equal(after.constant(node.input[1]), [-5, 6])
    assert "b" not in after.constants


def test_a_bias_that_others_read_stays_for_them() -> None:
    """Only the sum before the Gelu is written anew."""
    _, after = changed("[keep] k = Mul (x, b)", "[add] a = Add (k, b)", GELU)
    assert list(after.node("keep").input) == ["x", "b"]
    assert after.node("add").op_type == "Sub"


@pytest.mark.parametrize(
    "lines",
    [
        ["[add] a = Add (x, b)", NORM],  # a bias is no residual
        ["[add] a = Add (x, u)", GELU],  # no constant
        ["[add] a = Add (w, b)", GELU],  # constants alone
        ["[add] a = Add (w, b)", NORM],
        ["[add] a = Add (x, u)", "[q] q = QuantizeLinear (a, scale, zero)", NORM],
        ["[add] a = Add (x, b)", "[r] y2 = Relu (a)", GELU],  # two readers
        ["[add] a = Add (x, b)", "[r] y = Relu (a)"],
        ["[add] a = Add (x, u)", "[r] y = Relu (a)"],
        ["[add] a = Mul (x, u)", NORM],
        ["[add] a = own.Add (x, u)", NORM],
        ["[add] a = own.Add (x, b)", GELU],
    ],
)
def test_other_sums_stay(lines: list[str]) -> None:
    """Those that nothing fuses, and those that somebody needs as bytes."""
    before, after = changed(*lines)
    assert after.model.SerializeToString(deterministic=True) == before.model.SerializeToString(deterministic=True)
