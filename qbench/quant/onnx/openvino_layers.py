"""What OpenVINO really ran: the layers that multiply and accumulate, from the graph that it executes."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbench.modes import Precision
from qbench.quant.artifacts import openvino_model
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import (
    WARMUP_CALLS,
    CallProfile,
    Kind,
    NodeTime,
    median_of_calls,
    plan_watching,
    time_calls,
)
from qbench.quant.onnx.export import split_concats
from qbench.quant.onnx.onnxruntime_layers import Executed

_LAYERS = {"Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNSeq", "RNNCell"}
# What only changes the form of values: between float and int8, and between layouts in memory.
_CONVERSIONS = {"Reorder", "FakeQuantize", "Convert", "Quantize", "Dequantize"}
_JOINED = "Subgraph"  # several nodes that OpenVINO has written one kernel for
_FEW_BITS = {"i8": 8, "u8": 8, "i4": 4, "u4": 4}
_NOT_RUN = "not_executed"
# How the names of its kernels end.
_ENDINGS: Mapping[str, Precision] = {"_i8": "int8", "_u8": "int8", "_bf16": "bf16", "_f16": "fp16"}
# What OpenVINO hangs on the name of a node of which it makes several, and qbench itself (``split_concats``).
_PARTS = (
    split_concats.FIRST,
    "/WithoutBiases",
    "/DequantizationMultiply",
    "/DequantizationSubtract",
    "/DequantizationConvert",
)

Shape = tuple[int, ...]


def executed(file: Path, inputs: tuple[Any, ...]) -> tuple[Executed, ...]:
    """The nodes that multiplied and accumulated in one inference, in order; multiply-accumulates at batch size 1.

    The format is what the kernel's name says: ``runtimePrecision`` alone is that of the tensors, and a float kernel may
    write int8 (seen on a transposed convolution: i8, run by brgconv_avx2_f32). A kernel of several nodes has one name
    for all of them: there int8 is each product that reads a matrix of bytes. ``inputs`` are a batch of the size that
    the file takes.
    """
    compiled = openvino_model.compile_file(file, inputs, profile=True)
    outputs = openvino_model.run(compiled, inputs)  # shapes and kernels are settled by it
    return _list_executed(compiled, file, inputs, outputs)


def _list_executed(compiled: Any, file: Path, inputs: tuple[Any, ...], outputs: Any) -> tuple[Executed, ...]:
    """The layers of a model that has run once; ``outputs``: the first of what it gave."""
    batch = len(inputs[0]) if inputs[0].ndim else 1
    bytes_made = None
    layers = []
    for node in compiled.get_runtime_model().get_ordered_ops():
        info = {key: _text(value) for key, value in node.get_rt_info().items()}
        if info["layerType"] in _LAYERS and info["execTimeMcs"] != _NOT_RUN:
            kernel, bits = info["primitiveType"], _count_weight_bits(node)
            precision = _precision(kernel)
            if bits is not None and precision == "fp32":
                bytes_made = _makes_bytes(file, inputs, outputs) if bytes_made is None else bytes_made
                precision = "int8" if bytes_made else "fp32"
            layer = Layer(
                name=node.get_friendly_name(),
                operator=f"{info['layerType']} {kernel}",
                macs=_multiply_accumulates(info["layerType"], node) // batch,
                precision=precision,
                weight_bits=bits,
            )
            layers.append(Executed(names=_names(node, info), layer=layer))
        for name, shape in _matrices_of_bytes(node):
            macs = math.prod(shape) * _shape(node.get_output_partial_shape(0))[0] // batch
            layer = Layer(name=name, operator=f"{_JOINED} {info['primitiveType']}", macs=macs, precision="int8")
            layers.append(Executed(names=_names(node, info), layer=layer))
    return tuple(layers)


def _count_weight_bits(node: Any) -> int | None:
    """How many bits the weight of an executed product has that reads floats beside it (OpenVINO transposes some as it
    runs); None for any other: an int8 product, whose activation is bytes, too, has bytes as they are multiplied."""
    types = [str(value.get_element_type().get_type_name()) for value in node.inputs()]
    return _FEW_BITS.get(types[1]) if len(types) > 1 and types[0] in ("f32", "bf16", "f16") else None


def _makes_bytes(file: Path, inputs: tuple[Any, ...], outputs: Any) -> bool:
    """Whether OpenVINO makes bytes of what meets weights of few bits, which the names of its kernels do not tell: its
    answers are others where it is told not to."""
    plain = openvino_model.compile_file(file, inputs, dynamic_group=0)
    return not np.array_equal(outputs, openvino_model.run(plain, inputs), equal_nan=True)


def _names(node: Any, info: dict[str, str]) -> frozenset[str]:
    """The nodes of the file that an executed node is made of, as far as it tells."""
    return frozenset(map(_whole, [node.get_friendly_name(), *info["originalLayersNames"].split(",")]))


def _matrices_of_bytes(node: Any) -> list[tuple[str, Shape]]:
    """The int8 matrices that a kernel of several nodes reads beside an activation, by name; none of any other node.

    Where the batch size is fixed, OpenVINO 2026.4 joins matrix products of up to 256 columns, with all between them,
    into one such kernel, and only a product whose second operand is a constant as it stands: bytes are multiplied as
    bytes. Its answers are bit for bit those of the int8 kernels that it takes for any batch size.
    """
    if _text(node.get_rt_info()["layerType"]) != _JOINED:
        return []
    sources = [value.get_source_output().get_node() for value in node.inputs()]
    constant = [_text(source.get_rt_info()["layerType"]) == "Const" for source in sources]
    if all(constant):
        return []
    shapes = [_shape(value.get_partial_shape()) for value in node.inputs()]
    return [
        (source.get_friendly_name(), shape)
        for source, shape, fixed in zip(sources, shapes, constant, strict=True)
        if fixed and len(shape) == 2 and _text(source.get_rt_info()["runtimePrecision"]) in ("i8", "u8")
    ]


def time_nodes(file: Path, inputs: tuple[Any, ...], *, threads: int, calls: int) -> CallProfile:
    """The nodes of a call with these inputs, by OpenVINO's own counters (whole microseconds) over that many calls."""
    bare = _time_apart(file, inputs, threads, calls)
    compiled = openvino_model.compile_file(file, inputs, threads=threads, profile=True)
    return _time_watched(compiled, inputs, calls, WARMUP_CALLS, bare)


def watch(
    file: Path, inputs: tuple[Any, ...], *, threads: int, seconds: float
) -> tuple[tuple[Executed, ...], CallProfile]:
    """``executed`` and ``time_nodes`` by one compiled model, for about ``seconds``."""
    compiled = openvino_model.compile_file(file, inputs, threads=threads, profile=True)
    request = compiled.create_infer_request()
    plan = plan_watching(lambda: request.infer(list(inputs)), seconds)
    layers = _list_executed(compiled, file, inputs, np.array(request.infer(list(inputs))[0]))
    bare = _time_apart(file, inputs, threads, plan.calls, plan.warmups) if plan.apart else None
    return layers, _time_watched(compiled, inputs, plan.calls, plan.warmups, bare)


def _time_apart(file: Path, inputs: tuple[Any, ...], threads: int, calls: int, warmups: int = WARMUP_CALLS) -> float:
    """The median of calls that nobody watches, seconds."""
    request = openvino_model.compile_file(file, inputs, threads=threads).create_infer_request()
    return time_calls(lambda: request.infer(list(inputs)), calls, warmups)


def _time_watched(
    compiled: Any, inputs: tuple[Any, ...], calls: int, warmups: int, bare_seconds: float | None
) -> CallProfile:
    """``bare_seconds`` None: watching costs next to nothing."""
    request = compiled.create_infer_request()
    nodes = compiled.get_runtime_model().get_ordered_ops()
    joined = {node.get_friendly_name() for node in nodes if _matrices_of_bytes(node)}
    watched, durations = [], []
    for _ in range(warmups + calls):
        before = time.perf_counter()
        request.infer(list(inputs))
        durations.append(time.perf_counter() - before)
        watched.append({info.node_name: info for info in request.get_profiling_info() if _has_run(info)})
    seconds = [{name: info.real_time.total_seconds() for name, info in call.items()} for call in watched]
    watched_seconds = statistics.median(durations[warmups:])
    return CallProfile(
        nodes=tuple(
            NodeTime(
                layer=_whole(name),
                operator=f"{watched[-1][name].node_type} {watched[-1][name].exec_type}",
                kind="int8 product" if name in joined else _kind(watched[-1][name]),
                seconds=value,
            )
            for name, value in median_of_calls(seconds[warmups:]).items()
            if name in watched[-1]
        ),
        call_seconds=watched_seconds if bare_seconds is None else bare_seconds,
        watched_seconds=watched_seconds,
    )


def _has_run(info: Any) -> bool:
    return bool(info.status == type(info.status).EXECUTED)


def _kind(info: Any) -> Kind:
    if info.node_type.startswith(tuple(_LAYERS)):  # an int8 product is a "FullyConnectedQuantizedLegacy"
        return "int8 product" if _precision(info.exec_type) == "int8" else "float product"
    return "conversion" if info.node_type in _CONVERSIONS else "other"


def _precision(kernel: str) -> Precision:
    return next((own for ending, own in _ENDINGS.items() if kernel.lower().endswith(ending)), "fp32")


def _whole(name: str) -> str:
    """The name of the node of the file that an executed node is a part of."""
    while (part := next((part for part in _PARTS if name.endswith(part)), None)) is not None:
        name = name.removesuffix(part)
    return name


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value.astype(str))


def _multiply_accumulates(kind: str, node: Any) -> int:
    output = _shape(node.get_output_partial_shape(0))
    inputs = [_shape(value.get_partial_shape()) for value in node.inputs()]
    if kind.startswith("RNN"):  # the constants of three axes are the weights of input and state
        steps = math.prod(inputs[0][:-1])
        return steps * sum(math.prod(value) for i, value in enumerate(inputs) if len(value) == 3 and _constant(node, i))
    if kind == "Convolution":
        return math.prod(output) * math.prod(inputs[1]) // output[1]
    if kind == "Deconvolution":
        return math.prod(inputs[0]) * math.prod(inputs[1]) // inputs[0][1]
    # The axis that is summed over is the last of A, unless A is transposed.
    plain = len(inputs[0]) < 2 or inputs[0][-2] == output[-2]
    return math.prod(output) * inputs[0][-1 if plain else -2]


def _constant(node: Any, position: int) -> bool:
    maker = node.input_value(position).get_node()
    return _text(maker.get_rt_info()["layerType"]) == "Const"


def _shape(partial: Any) -> Shape:
    return tuple(1 if size.is_dynamic else size.get_length() for size in partial)
