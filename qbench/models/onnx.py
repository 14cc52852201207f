"""A network from an ONNX file: ``source: {onnx: model.onnx}``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qbench.errors import ModelError, reraise
from qbench.models.base import ModelReference, Network
from qbench.quant.artifacts import onnx_check
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.graph.quantized import why_not_float


def load(reference: ModelReference) -> Network:
    """The file, after ONNX's checker accepted it and ONNX Runtime could load it.

    Raises ``ModelError``, also for a file that is quantized already: as fp32 it would make every comparison worthless.
    """
    path = reference.path
    if path is None or not path.is_file():
        raise ModelError(f"{reference.name}: no ONNX file at {path}")
    if reference.weights is not None or reference.args:
        raise ModelError(f"{reference.name}: an ONNX file carries its weights; remove `weights` and `args`")
    model = onnx_check.load(path, weights=False, valid=False)
    _refuse_quantized(model, path)  # first: of their operators the checker knows but a few
    onnx_check.require_valid(model, path)
    _check_runs(path)
    return Network(kind="onnx", path=path)


def _refuse_quantized(model: Any, path: Path) -> None:
    reason = why_not_float(model)
    if reason is not None:
        raise ModelError(
            f"{path}: {reason}, so it is no fp32 to compare with; give the float model it was made from as source, and "
            f"this file beside it: `int8: {path}`"
        )


def _check_runs(path: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # what is wrong is in the exception; its log goes to stderr as well
    options.intra_op_num_threads = 1
    with reraise(
        ModelError,
        lambda error: f"{path}: ONNX Runtime cannot load it: {onnxruntime_session.plain(error)}",
        onnxruntime_session.runtime_errors(),
    ):
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
