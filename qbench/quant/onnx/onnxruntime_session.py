"""ONNX models for ONNX Runtime: export from torch, dynamic and static int8, sessions."""

from __future__ import annotations

import contextlib
import platform
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError, ModeImpossible, ModelError, QbenchError, out_of_memory
from qbench.quant import model_call
from qbench.quant.artifacts import onnx_file
from qbench.quant.onnx.export import deploy_onnxruntime
from qbench.quant.onnx.node_names import match_nodes
from qbench.quant.recipe import Recipe
from qbench.quant.target import ADD_IN_16_BITS, adds_in_16_bits, name_cpus
from qbench.record.schema import TargetFacts

Array = NDArray[Any]
# A wider difference than rounding in another order gives (fp32, a few dozen layers).
EXPORT_TOLERANCE = 1e-3
_X86 = ("x86_64", "AMD64")
_INTEGER_PRODUCTS = ("MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul")
# The longest inference that is waited for, of a batch on few cores: a Loop in a file from elsewhere may have no end.
CALL_SECONDS = 600.0
_LONGEST = 400  # characters of a library's message that are quoted


def export(module: Any, example: tuple[Any, ...], file: Path, *, tolerance: float = EXPORT_TOLERANCE) -> None:
    """Exports a torch module with the dynamo exporter and a dynamic batch axis, and checks its outputs.

    Raises ``BuildError`` where the exporter cannot, or where ONNX Runtime's outputs differ from torch's by more
    than ``tolerance`` as a share of the largest output.
    """
    import torch

    expected = model_call.of_one_example(module, example).numpy()
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
            if out_of_memory(cause):
                raise cause from error
            raise ModeImpossible(
                f"torch.onnx cannot export this model: {model_call.reason(cause)}; write that part with other tensor "
                "operations, give an ONNX file of the model, or use a torch engine"
            ) from error
    _forget_sources(file)
    outputs = run(file, tuple(tensor.numpy() for tensor in example))
    worst = float(np.abs(expected - outputs).max())
    if not worst <= tolerance * max(1.0, float(np.abs(expected).max())):
        model_call.require_repeatable(module, example=example)
        raise BuildError(f"the exported ONNX model differs from the torch model: largest difference {worst:g}")


def _forget_sources(file: Path) -> None:
    """Takes away where in the Python each node comes from: with it a comment in the model's file, or another folder,
    would give other bytes, and an artifact that is the same would not look it."""
    import onnx

    model = onnx.load(str(file))
    graphs = [model.graph]
    for graph in graphs:  # grows by the bodies of If, Loop and Scan
        del graph.metadata_props[:]
        for part in (*graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
            del part.metadata_props[:]
        graphs += [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    for node in (node for function in model.functions for node in function.node):
        del node.metadata_props[:]
    onnx.save(model, str(file))


def framework_static(fp32: Path, file: Path, recipe: Recipe, calibration: tuple[Array, ...]) -> None:
    """ONNX Runtime's own static quantization as its documentation has it: shapes inferred and operators fused first,
    then every choice at its default (QDQ, per tensor, min/max); of the recipe only ``skip_layers`` counts.

    But for signed activations on x86, its default for every CPU: its convolutions then run in float there (seen with
    ONNX Runtime 1.31: of a network of three layers 0.2 % in int8). Its min/max calibrator keeps two numbers a tensor
    and example; its histogram calibrators keep every value. Raises ``BuildError`` where the quantizer cannot.
    """
    from onnxruntime.quantization import QuantType, quantize_static

    with tempfile.TemporaryDirectory() as folder, _quantizing(folder, file):
        prepared = preprocess(fp32, Path(folder) / "preprocessed.onnx")
        quantize_static(
            str(prepared),
            str(file),
            _Reader(iter(onnx_file.Batches(fp32, calibration))),
            activation_type=QuantType.QUInt8 if platform.machine() in _X86 else QuantType.QInt8,
            nodes_to_exclude=_excluded(prepared, recipe.skip_layers),
        )


def dynamic(fp32: Path, file: Path, recipe: Recipe) -> tuple[str, ...]:
    """int8 weights; activations are quantized as the model runs. What a reader must know of the weights: where ONNX
    Runtime adds products in 16 bits, here or on a CPU of the target, they have 7 bits. Raises ``BuildError`` where the
    quantizer cannot."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    here = deploy_onnxruntime.form_for() == "U8U8"
    narrow = (here or adds_in_16_bits(recipe.cpus)) and not recipe.framework_default

    with tempfile.TemporaryDirectory() as folder, _quantizing(folder, file):
        prepared = preprocess(fp32, Path(folder) / "preprocessed.onnx")
        _plain_weights(prepared)
        quantize_dynamic(
            str(prepared),
            str(file),
            per_channel=bool(recipe.per_channel),
            weight_type=QuantType.QInt8,
            reduce_range=narrow,
            nodes_to_exclude=_excluded(prepared, recipe.skip_layers, splits_gemm=True),
        )
    where = "no VNNI" if here else f"for {name_cpus(recipe.cpus, ADD_IN_16_BITS)}"
    return (f"{where}: weights have 7 bits, so that 16-bit sums hold",) if narrow else ()


def describe_target(file: Path, recipe: Recipe) -> TargetFacts | None:
    """What a dynamic file is for other CPUs: all of its products have weights of 7 bits where those add in 16 bits;
    None where it is for this one alone."""
    import onnx

    if not recipe.cpus:
        return None
    graph = onnx.load(str(file), load_external_data=False).graph
    layers = sum(node.op_type in _INTEGER_PRODUCTS for node in graph.node)
    return TargetFacts(cpus=recipe.cpus, layers=layers, layers_narrowed=layers if adds_in_16_bits(recipe.cpus) else 0)


def _plain_weights(file: Path) -> None:
    """Takes away what ONNX Runtime's dynamic quantizer trips over: it transposes the weight of a Gemm under its name.

    A weight with several readers would be transposed for one of them only, or twice: each further reader gets a copy.
    The noted shape of a weight would no longer be true ("Inferred shape and existing shape differ").
    """
    import onnx

    model = onnx.load(str(file))
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 2}
    names: set[str] = set()
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in names and name in weights:
                twin = graph.initializer.add()
                twin.CopyFrom(weights[name])
                twin.name = f"{name}_of_{node.name or node.output[0]}_{place}"
                node.input[place] = twin.name
            names.add(name)
    values = [value for value in graph.value_info if value.name not in weights]
    del graph.value_info[:]
    graph.value_info.extend(values)
    onnx.save(model, str(file))


def preprocess(fp32: Path, file: Path) -> Path:
    """Shapes inferred and operators fused (BatchNorm into Conv), as ONNX Runtime's quantizer wants it."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, target = str(fp32.resolve()), str(file.resolve())
    # Where ONNX Runtime's symbolic inference gives up, it leaves the model in the working folder.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        try:
            quant_pre_process(source, target)
        except Exception as error:  # of all kinds: an axis known by two names, a shape that stands in the file wrongly
            if out_of_memory(error):
                raise
            quant_pre_process(source, target, skip_symbolic_shape=True)  # ONNX's own inference is left
    return file


@contextlib.contextmanager
def _quantizing(*temporary: Path | str) -> Iterator[None]:
    """The quantizer is quiet, and what it raises is one message without the names of temporary files."""
    with _quiet_library():
        try:
            yield
        except QbenchError:
            raise
        except Exception as error:  # the quantizer, onnx and the runtime raise all kinds, some of them bare
            if out_of_memory(error):
                raise
            words = f"{type(error).__name__}: {plain(error, *temporary)}"
            raise BuildError(
                f"ONNX Runtime's quantizer cannot quantize this model: {words}; name what it "
                "cannot take in quantize.*.skip_layers, or leave this mode out"
            ) from error


def plain(error: BaseException, *temporary: Path | str) -> str:
    """A library's message on one line, without its error numbers and without paths that mean nothing to a reader."""
    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : (\w+) : ", r"\1: ", text)
    for path in temporary:
        text = re.sub(rf"{re.escape(str(path))}[^\s'\"]*", "the model", text)
    return text[:_LONGEST] or "no message"


def _excluded(file: Path, skipped: tuple[str, ...], *, splits_gemm: bool = False) -> list[str]:
    """The nodes that ``skip_layers`` means. ``splits_gemm``: for a quantizer that makes a MatMul and an Add of a Gemm
    before it looks at what is excluded, so that the product has another name by then."""
    import onnx

    nodes = onnx.load(str(file), load_external_data=False).graph.node
    labels = {node.name: module_of(node) or node.name for node in nodes}
    names = [name for pattern in skipped for name in match_nodes(pattern, labels)]
    gemms = {node.name for node in nodes if node.op_type == "Gemm"} if splits_gemm else set()
    return [*names, *(f"{name}_MatMul" for name in names if name in gemms)]


def module_of(node: Any) -> str | None:
    """The torch module a node came from, by its first parameter: ``stage.conv.weight`` -> ``stage.conv``."""
    parameters = [name for name in node.input if name.endswith((".weight", ".bias"))]
    return parameters[0].rpartition(".")[0] if parameters else None


class _Reader:
    """Batches as ONNX Runtime's calibrators ask for them. Where any size will do, one example a batch bounds its memory
    least badly."""

    def __init__(self, batches: Iterator[Mapping[str, Array]]) -> None:
        self._batches = batches

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


def runtime_errors() -> tuple[type[Exception], ...]:
    """The classes of ONNX Runtime's own errors, one for each of its status codes, which share no base."""
    from onnxruntime.capi import onnxruntime_pybind11_state as binding

    return tuple(value for value in vars(binding).values() if isinstance(value, type) and issubclass(value, Exception))


def open_session(file: Path, *, threads: int = 1, options: Any = None) -> Any:
    """An inference session on the CPU provider; raises ``BuildError`` with the runtime's own words."""
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(
            str(file), options or session_options(threads), providers=["CPUExecutionProvider"]
        )
    except runtime_errors() as error:
        if out_of_memory(error):
            raise
        words = re.sub(r"Load model from .* failed: ?", "", plain(error))
        raise BuildError(f"ONNX Runtime cannot load the model: {words}") from error


def call(session: Any, names: Sequence[str] | None, feed: Mapping[str, Array], *, seconds: float | None = None) -> Any:
    """The named outputs (None: all) of one inference, as a list; raises what the runtime raises, and ``ModelError``
    where it does not end within ``seconds`` (None: ``CALL_SECONDS``)."""
    import onnxruntime

    seconds = CALL_SECONDS if seconds is None else seconds
    options, late = onnxruntime.RunOptions(), threading.Event()
    options.log_severity_level = 4  # what is wrong is in the exception

    def end() -> None:
        late.set()
        options.terminate = True  # asked for between two nodes, in a Loop too

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        return session.run(None if names is None else list(names), dict(feed), options)
    except runtime_errors() as error:
        if not late.is_set():
            raise
        raise ModelError(
            f"one inference takes longer than {seconds:g} s: is there a Loop in it that does not end?"
        ) from error
    finally:
        timer.cancel()


def open_run(file: Path) -> Callable[[tuple[Array, ...]], Array]:
    """A session on one thread: inputs -> the first output of one inference."""
    session = open_session(file)
    names = [value.name for value in session.get_inputs()]

    def run_once(inputs: tuple[Array, ...]) -> Array:
        result: Array = session.run(None, dict(zip(names, inputs, strict=True)))[0]
        return result

    return run_once


def run(file: Path, inputs: tuple[Array, ...]) -> Array:
    """The first output of one inference."""
    return open_run(file)(inputs)
