"""What is quantized already in an ONNX model, and how."""

from __future__ import annotations

from typing import Any

from qbench.errors import first_names
from qbench.quant.onnx.graph import float_simulation

# Beside every operator whose name holds "quantize" or begins with "QLinear".
QUANTIZED = {
    "ConvInteger", "MatMulInteger", "QGemm", "QAttention", "MatMulNBits", "MatMulFpQ4", "QOrderedMatMul",
    "AscendQuant", "AscendDequant", "AscendWeightQuant", "AscendAntiQuant", "MatMulIntegerToFloat",
    "Quant", "IntQuant", "BipolarQuant", "FloatQuant",  # of Brevitas and QONNX
}  # fmt: skip
_SHOWN = 3  # nodes that a message names


def quantized_nodes(model: Any) -> list[Any]:
    """The nodes of a model that quantize, compute in integers, simulate that in float, or read weights that are stored
    as integers; also in subgraphs and in its functions."""
    named = [node for node in float_simulation.all_nodes(model) if _is_quantized(node)]
    return [*named, *float_simulation.rounding_nodes(model)]


def why_not_float(model: Any) -> str | None:
    """``already quantized (conv, QuantizeLinear -> x_q and 12 more)``; None for a float model."""
    names = [node.name or f"{node.op_type} -> {node.output[0]}" for node in quantized_nodes(model)]
    return f"already quantized ({first_names(names, _SHOWN)})" if names else None


def ranges_at_run_time(model: Any) -> str | None:
    """The operator of a model that chooses the range of an activation as it runs; None where all are fixed."""
    return next((node.op_type for node in quantized_nodes(model) if node.op_type.startswith("DynamicQuantize")), None)


def why_not_int8(model: Any, file: str, mode: str) -> str | None:
    """Why a model is no int8 contender of a mode (``static``, ``dynamic``) and what to write in the suite, where it is
    called ``file``; None where it is one."""
    nodes = quantized_nodes(model)
    if not nodes:
        return "nothing in it is quantized: a float file goes under source, an int8 one under int8"
    if float_simulation.is_simulation_alone(nodes):
        return (
            f"it simulates int8 in float ({first_names([node.name for node in nodes], _SHOWN)}), so nothing of it runs "
            "in int8; give the file that is deployed (`qbench onnx` and AMCT call it …_deploy_model.onnx)"
        )
    return why_other_mode(ranges_at_run_time(model), file, mode)


def why_other_mode(operator: str | None, file: str, mode: str) -> str | None:
    """What to write for an int8 file that is not of a mode; None where it is. ``operator``: the one of the file that
    chooses the range of an activation as it runs, None where all ranges are fixed."""
    actual = "static" if operator is None else "dynamic"
    if actual == mode:
        return None
    why = "it has fixed ranges only" if operator is None else f"it chooses ranges as it runs ({operator})"
    return f"{why}: write `int8: {{file: {file}, mode: {actual}}}`"


def _is_quantized(node: Any) -> bool:
    kind = node.op_type
    return kind in QUANTIZED or "quantize" in kind.lower() or kind.startswith("QLinear")
