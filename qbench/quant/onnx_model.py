"""ONNX models for ONNX Runtime: export from torch, dynamic and static int8, and what the runtime really ran."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError
from qbench.quant.coverage import Layer
from qbench.quant.recipe import Recipe

Array = NDArray[Any]
# A wider difference than rounding in another order gives (fp32, a few dozen layers).
EXPORT_TOLERANCE = 1e-3


def export(module: Any, example: tuple[Any, ...], file: Path) -> None:
    """Exports a torch module with the dynamo exporter and a dynamic batch axis, and checks its outputs.

    Raises ``BuildError`` where the exporter cannot, or where ONNX Runtime's outputs differ from torch's by more
    than ``EXPORT_TOLERANCE`` of the largest output.
    """
    import torch

    batch = torch.export.Dim("batch", min=1)
    doubled = tuple(torch.cat([tensor, tensor]) for tensor in example)
    with warnings.catch_warnings():
        # The exporter warns of its own deprecated internals; what matters is checked below.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                module,
                doubled,
                str(file),
                dynamo=True,
                dynamic_shapes=tuple({0: batch} for _ in example),
                input_names=[f"input_{i}" for i in range(len(example))],
                output_names=["output"],
                external_data=False,
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            cause = error.__cause__ or error
            raise BuildError(f"torch.onnx cannot export this model: {str(cause).strip().splitlines()[0]}") from error
    with torch.inference_mode():
        result = module(*example)
    expected = (result[0] if isinstance(result, tuple | list) else result).numpy()
    found = run(file, tuple(tensor.numpy() for tensor in example))
    worst = float(np.abs(expected - found).max())
    if not worst <= EXPORT_TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise BuildError(f"the exported ONNX model differs from the torch model: largest difference {worst:g}")


def copy(source: Path, target: Path) -> None:
    """The user's ONNX file as one file, external data taken in."""
    import onnx

    model = onnx.load(str(source), load_external_data=False)
    if any(tensor.external_data for tensor in model.graph.initializer):
        onnx.save(onnx.load(str(source)), str(target))
    else:
        shutil.copyfile(source, target)


def input_names(file: Path) -> tuple[str, ...]:
    """The names of the inputs that are not initializers, in order."""
    import onnx

    graph = onnx.load(str(file), load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    return tuple(value.name for value in graph.input if value.name not in constants)


def fixed_batch(file: Path) -> int | None:
    """The batch size that the first input demands; None where it is dynamic."""
    import onnx

    graph = onnx.load(str(file), load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name not in constants:
            first = value.type.tensor_type.shape.dim[:1]
            return int(first[0].dim_value) if first and first[0].dim_value > 0 else None
    return None


def static(fp32: Path, file: Path, recipe: Recipe, calibration: tuple[Array, ...]) -> None:
    """QDQ, activations uint8, weights int8 (U8S8): the form that VNNI kernels run."""
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    method = {"histogram": CalibrationMethod.Percentile, "minmax": CalibrationMethod.MinMax}
    with tempfile.TemporaryDirectory() as folder, _quiet_library():
        prepared = preprocess(fp32, Path(folder) / "preprocessed.onnx")
        quantize_static(
            str(prepared),
            str(file),
            _Batches(input_names(fp32), calibration, fixed_batch(fp32) or 1),
            quant_format=QuantFormat.QDQ,
            per_channel=bool(recipe.per_channel),
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=method[recipe.calibrator or "minmax"],
            nodes_to_exclude=_excluded(prepared, recipe.skip_layers),
        )


def dynamic(fp32: Path, file: Path, recipe: Recipe) -> None:
    """int8 weights; activations are quantized as the model runs."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder, _quiet_library():
        prepared = preprocess(fp32, Path(folder) / "preprocessed.onnx")
        quantize_dynamic(
            str(prepared),
            str(file),
            per_channel=bool(recipe.per_channel),
            weight_type=QuantType.QInt8,
            nodes_to_exclude=_excluded(prepared, recipe.skip_layers),
        )


def preprocess(fp32: Path, file: Path) -> Path:
    """Shapes inferred and operators fused (BatchNorm into Conv), as ONNX Runtime's quantizer wants it."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(str(fp32), str(file))
    return file


def _excluded(file: Path, skipped: tuple[str, ...]) -> list[str]:
    """The nodes whose name or output is one of ``skip_layers`` (as written, or as the exporter spells it)."""
    import onnx

    nodes = onnx.load(str(file), load_external_data=False).graph.node
    found: list[str] = []
    for name in skipped:
        matches = [node.name for node in nodes if name == node.name or _module_of(node) == name]
        if not matches:
            names = ", ".join(node.name for node in nodes)
            raise BuildError(f"skip_layers: no layer named {name}; the ONNX nodes are {names}")
        found += matches
    return found


def _module_of(node: Any) -> str | None:
    """The torch module a node came from, by its first parameter: ``stage.conv.weight`` -> ``stage.conv``."""
    parameters = [name for name in node.input if name.endswith((".weight", ".bias"))]
    return parameters[0].rpartition(".")[0] if parameters else None


class _Batches:
    """Calibration examples as ONNX Runtime's reader wants them; one example a batch bounds its memory least badly."""

    def __init__(self, names: tuple[str, ...], inputs: tuple[Array, ...], size: int) -> None:
        count = len(inputs[0]) // size * size
        self._batches = (
            {name: np.ascontiguousarray(array[i : i + size]) for name, array in zip(names, inputs, strict=True)}
            for i in range(0, count, size)
        )

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._batches, None)

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return self._batches

    def __next__(self) -> Mapping[str, Array]:
        return next(self._batches)


@contextlib.contextmanager
def _quiet_library() -> Iterator[None]:
    """The quantizer logs advice through the root logger that qbench has already followed."""
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def session_options(threads: int) -> Any:
    """Options of every session: that many intra-op threads, sequential, no spinning, errors only."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    # Spinning threads slow whatever else runs on the machine, the other arms of the measurement included.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return options


def open_session(file: Path, *, threads: int = 1, options: Any = None) -> Any:
    """An inference session on the CPU provider; raises ``BuildError`` with the runtime's own words."""
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(
            str(file), options or session_options(threads), providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # the binding raises bare RuntimeError subclasses that it does not export
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        raise BuildError(f"ONNX Runtime cannot load the model: {str(error).splitlines()[0]}") from error


def run(file: Path, inputs: tuple[Array, ...]) -> Array:
    """The first output of one inference."""
    session = open_session(file)
    names = [value.name for value in session.get_inputs()]
    result: Array = session.run(None, dict(zip(names, inputs, strict=True)))[0]
    return result


# --- what really ran ----------------------------------------------------------------------------------------

_FLOAT = {"Conv", "FusedConv", "ConvTranspose", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "LSTM", "GRU", "RNN"}
_INT8 = {
    "QLinearConv", "ConvInteger", "QGemm", "QLinearMatMul", "MatMulInteger", "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul", "DynamicQuantizeLSTM",
}  # fmt: skip
_RECURRENT_GATES = {"LSTM": 4, "DynamicQuantizeLSTM": 4, "GRU": 3, "RNN": 1}


def layers(file: Path, example: tuple[Array, ...], *, optimized: bool = True) -> tuple[Layer, ...]:
    """The operators that multiply and accumulate in one inference, in order, from the runtime's own profile.

    ``optimized=True`` is what the kernels really do; ``False`` runs the graph as written (the fp32 reference,
    whose names and counts no optimization has touched). Weight shapes come from the graph that the runtime
    wrote, activation shapes from the profile. Counts are of the whole batch of ``example``.
    """
    import onnx
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = session_options(1)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        if not optimized:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = open_session(file, options=options)
        names = [value.name for value in session.get_inputs()]
        session.run(None, dict(zip(names, example, strict=True)))
        events = json.loads(Path(session.end_profiling()).read_text())
        graph = onnx.load(str(Path(folder) / "optimized.onnx")).graph
    constants = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    nodes = {node.name: node for node in graph.node}
    found = []
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            name, arguments = event["name"].removesuffix("_kernel_time"), event["args"]
            operator = arguments["op_name"]
            if operator in _FLOAT | _INT8 and name in nodes:
                macs = _multiply_accumulates(operator, nodes[name], arguments, constants)
                label = _module_of(nodes[name]) or name
                found.append(Layer(name=label, operator=operator, macs=macs, int8=operator in _INT8))
    return tuple(found)


def _multiply_accumulates(
    operator: str, node: Any, arguments: Mapping[str, Any], constants: Mapping[str, tuple[int, ...]]
) -> int:
    seen: list[list[int]] = [next(iter(shape.values())) for shape in arguments["input_type_shape"]]
    output: int = math.prod(next(iter(arguments["output_type_shape"][0].values())))
    if operator in _RECURRENT_GATES:
        hidden = next(int(a.i) for a in node.attribute if a.name == "hidden_size")
        steps, batch, width = seen[0]
        directions: int = output // (steps * batch * hidden)
        gates: int = _RECURRENT_GATES[operator]
        return directions * steps * batch * gates * hidden * (width + hidden)
    if "Conv" in operator:
        weight = constants[node.input[3 if operator == "QLinearConv" else 1]]
        elements = math.prod(seen[0]) if operator == "ConvTranspose" else output
        return elements * math.prod(weight[1:])
    inner: int = seen[0][-1]  # Gemm and MatMul: the last axis of A is summed over
    if operator == "Gemm" and any(a.name == "transA" and a.i for a in node.attribute):
        inner = seen[0][0]
    return output * inner
