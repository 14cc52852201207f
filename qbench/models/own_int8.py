"""Whether a file that is brought along is int8, and of which mode, whatever its format; nothing of it is run."""

from __future__ import annotations

from pathlib import Path

from qbench.errors import first_names
from qbench.models.base import format_of
from qbench.quant.artifacts import onnx_check, openvino_ir, torchscript_archive
from qbench.quant.onnx.graph import quantized

_SHOWN = 3  # operators in a message
_FLOAT = "nothing in it is quantized: a float file goes under source, an int8 one under int8"

_WEIGHTS_ALONE = (
    "only its weights are stored in bytes, so nothing of it runs in int8; quantize it with nncf.quantize, which also "
    "finds the ranges of activations"
)


def why_not_int8(file: Path, name: str, mode: str) -> str | None:
    """Why a file is no int8 contender of a mode (``static``, ``dynamic``) and what to write in the suite, where it is
    called ``name``; None where it is one. Raises ``ModelError`` for a file that is not of its format, or not whole."""
    if format_of(name) == "torchscript":
        operators = torchscript_archive.list_operators(file)
        if torchscript_archive.is_simulation(operators):
            return (
                f"it simulates int8 in float ({first_names(operators, _SHOWN)}), so nothing of it runs in int8; save "
                "it once it is converted (convert_fx, torch.ao.quantization.convert)"
            )
        at_run_time = torchscript_archive.find_range_at_run_time(operators)
        return quantized.why_other_mode(at_run_time, name, mode) if operators else _FLOAT
    if format_of(name) == "openvino":
        if openvino_ir.list_quantized(file):
            return quantized.why_other_mode(None, name, mode)
        return _WEIGHTS_ALONE if openvino_ir.has_compressed_weights(file) else _FLOAT
    return quantized.why_not_int8(onnx_check.load(file, weights=False, valid=False), name, mode)
