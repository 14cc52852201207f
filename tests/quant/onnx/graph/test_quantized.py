"""Rules of qbench/quant/onnx/graph/quantized.py: what is quantized already, of which mode, and what to write for it."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from qbench.quant.onnx.graph import quantized


def model(*operators: str, named: bool = True) -> Any:
    """A chain of operators of one input each."""
    nodes = [
        onnx.helper.make_node(kind, [f"t{number}"], [f"t{number + 1}"], name=f"{kind}_{number}" if named else "")
        for number, kind in enumerate(operators)
    ]
    value = onnx.helper.make_tensor_value_info
    ends = [value(name, onnx.TensorProto.FLOAT, None) for name in ("t0", f"t{len(operators)}")]
    return onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:]))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *((kind, True) for kind in ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv")),
        *((kind, True) for kind in ("ConvInteger", "MatMulNBits", "FakeQuantize", "AscendDequant", "IntQuant")),
        *((kind, False) for kind in ("Conv", "Relu", "Round", "MatMul", "NotQLinear")),
    ],
)
def test_an_operator_is_quantized_by_its_name(kind: str, expected: bool) -> None:
    """Those that quantize, compute on integers, or read weights of them, whosever they are."""
    assert bool(quantized.quantized_nodes(model("Relu", kind))) is expected


def test_what_is_quantized_already_is_named() -> None:
    """By its name, else by what it is and gives; three of them, and how many more."""
    assert quantized.why_not_float(model("Relu", "Conv")) is None
    named = model("Relu", "QuantizeLinear", "QLinearConv")
    assert quantized.why_not_float(named) == "already quantized (QuantizeLinear_1, QLinearConv_2)"
    bare = model("QuantizeLinear", *["QLinearConv"] * 4, named=False)
    assert quantized.why_not_float(bare) == (
        "already quantized (QuantizeLinear -> t1, QLinearConv -> t2, QLinearConv -> t3 and 2 more)"
    )


FIXED = ("QuantizeLinear", "QLinearConv", "DequantizeLinear")
AT_RUN = ("QuantizeLinear", "DynamicQuantizeLinear", "MatMulInteger")


@pytest.mark.parametrize(
    ("operators", "mode", "said"),
    [
        (FIXED, "static", None),
        (AT_RUN, "dynamic", None),
        (FIXED, "dynamic", "it has fixed ranges only: write `int8: {file: m.onnx, mode: static}`"),
        (
            AT_RUN,
            "static",
            "it chooses ranges as it runs (DynamicQuantizeLinear): write `int8: {file: m.onnx, mode: dynamic}`",
        ),
        (("Relu",), "static", "nothing in it is quantized: a float file goes under source, an int8 one under int8"),
    ],
)
def test_a_file_is_of_the_mode_in_which_its_ranges_come_about(operators: Any, mode: str, said: str | None) -> None:
    """Fixed, or chosen call by call; what to write is told."""
    assert quantized.why_not_int8(model(*operators), "m.onnx", mode) == said
