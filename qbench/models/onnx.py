"""A network from an ONNX file: ``source: {onnx: model.onnx}``."""

from __future__ import annotations

from pathlib import Path

from qbench.errors import ModelError
from qbench.models.base import ModelReference, Network
from qbench.quant import forward
from qbench.quant.uniform.graph.quantized import why_not_float


def load(reference: ModelReference) -> Network:
    """The file, after ONNX's checker accepted it and ONNX Runtime could load it.

    Raises ``ModelError``, also for a file that is quantized already: as fp32 it would make every comparison worthless.
    """
    path = reference.path
    if path is None or not path.is_file():
        raise ModelError(f"{reference.name}: no ONNX file at {path}")
    if reference.weights is not None or reference.args:
        raise ModelError(f"{reference.name}: an ONNX file carries its weights; remove `weights` and `args`")
    _check(path)
    _refuse_quantized(path)
    _check_runs(path)
    return Network(kind="onnx", path=path)


def _check(path: Path) -> None:
    import onnx

    try:
        onnx.checker.check_model(str(path))  # by path: external data and files above 2 GB are checked too
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        if forward.out_of_memory(error):
            raise
        raise ModelError(f"{path}: not a valid ONNX model: {error}") from error


def _refuse_quantized(path: Path) -> None:
    import onnx

    reason = why_not_float(onnx.load(str(path), load_external_data=False))
    if reason is not None:
        raise ModelError(
            f"{path}: {reason}, so it is no fp32 to compare with; give the float model it was made from as source, and "
            f"this file beside it: `int8: {path.name}`"
        )


def _check_runs(path: Path) -> None:
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # what is wrong is in the exception; its log goes to stderr as well
    options.intra_op_num_threads = 1
    failures = (state.Fail, state.InvalidGraph, state.InvalidProtobuf, state.InvalidArgument, state.NotImplemented)
    try:
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except (*failures, state.NoSuchFile, state.RuntimeException) as error:
        if forward.out_of_memory(error):
            raise
        raise ModelError(f"{path}: ONNX Runtime cannot load it: {error}") from error
