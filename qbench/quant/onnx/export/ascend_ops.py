"""An ascend model, computed: its integer operators by their definitions in numpy, the float ones by ONNX Runtime.

An int8 layer adds up (q - offset) * weight in int32 and adds its bias, as the compiled model does, where the offset is
moved into the bias and the padding. Products of bytes and their sums are whole numbers below 2^53, so that float64
matrix products give them exactly.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError
from qbench.quant.affine import HIGH, LOW
from qbench.quant.onnx.graph import equivalence
from qbench.quant.onnx.graph.graph import Graph, attribute, captured

Array = NDArray[Any]
OPERATORS = ("AscendQuant", "AscendDequant", "AscendAntiQuant")
_INT32 = np.iinfo(np.int32)


def is_ascend(graph: Graph) -> bool:
    """Whether a graph holds operators of the Ascend compiler."""
    return any(node.op_type in OPERATORS for node in graph.nodes)


def run(graph: Graph, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    """The outputs of an ascend model, in order, for inputs by name.

    Raises ``BuildError`` where an accumulator leaves int32, or where the model has an operator in a form that this
    interpreter does not know.
    """
    values: dict[str, Array] = {name: _constant(graph, name) for name in graph.constants} | dict(inputs)
    offsets: dict[str, float] = {}
    for node in graph.nodes:
        if node.op_type == "AscendQuant":
            offsets[node.output[0]] = attribute(node, "offset", 0.0)
            values[node.output[0]] = quantized(node, values[node.input[0]])
        elif node.op_type == "AscendAntiQuant":
            values[node.output[0]] = antiquantized(node, values[node.input[0]])
        elif node.op_type == "AscendDequant":
            channel = -1 if graph.node(_maker(graph, node)).op_type in ("Gemm", "MatMul") else 1
            values[node.output[0]] = dequantized(node, values[node.input[0]], values[node.input[1]], channel)
        elif node.input and node.input[0] in offsets:
            arguments = [values[name] for name in node.input if name]
            values[node.output[0]] = layer(node, arguments[0], offsets[node.input[0]], *arguments[1:])
        else:
            values |= _float(graph, node, values)
    return tuple(values[name] for name in graph.outputs)


def quantized(node: Any, x: Array) -> Array:
    """AscendQuant: clip(round(x * scale + offset), -128, 127) as int8, half to even, in float32."""
    _known(node, sqrt_mode=(0,), round_mode=(b"Round",), dst_type=(b"INT8",))
    scale, offset = np.float32(attribute(node, "scale")), np.float32(attribute(node, "offset", 0.0))
    q: Array = np.clip(np.rint(np.asarray(x, np.float32) * scale + offset), LOW, HIGH).astype(np.int8)
    return q


def antiquantized(node: Any, q: Array) -> Array:
    """AscendAntiQuant: (q + offset) * scale as float32."""
    _known(node, sqrt_mode=(0,), dtype=(0,))
    scale, offset = np.float32(attribute(node, "scale")), np.float32(attribute(node, "offset", 0.0))
    values: Array = (q.astype(np.float32) + offset) * scale
    return values


def dequantized(node: Any, accumulator: Array, deq_scale: Array, channel: int) -> Array:
    """AscendDequant: accumulator * scale as float32; the scale is in the low half of ``deq_scale`` (uint64), one scale,
    or one for each index along the axis ``channel``."""
    _known(node, sqrt_mode=(0,), relu_flag=(0,), dtype=(0,))
    if deq_scale.dtype != np.uint64 or (deq_scale >> np.uint64(32)).any():
        raise BuildError(f"{node.name}: a deq_scale that is not the bits of a float32 in the low half of a uint64")
    scale = deq_scale.astype(np.uint32).view(np.float32)
    shape = [1] * accumulator.ndim
    shape[channel] = -1
    values: Array = (accumulator.astype(np.float32) * scale.reshape(shape)).astype(np.float32)
    return values


def layer(node: Any, q: Array, offset: float, weight: Array | None = None, bias: Array | None = None) -> Array:
    """The accumulator of an int8 layer as int32; of an AveragePool the mean of q - offset, as float32."""
    x = q.astype(np.float64) - offset
    if node.op_type == "AveragePool":
        return _average_pool(node, x)
    if weight is None or weight.dtype != np.int8 or node.op_type not in _LAYERS:
        raise BuildError(f"{node.name}: a {node.op_type} that reads int8 without an int8 weight")
    result = _LAYERS[node.op_type](node, x, weight.astype(np.float64))
    if bias is not None:
        shaped = bias.reshape(-1) if node.op_type == "Gemm" else bias.reshape(-1, *[1] * (result.ndim - 2))
        result = result + shaped
    if result.size and (result.min() < _INT32.min or result.max() > _INT32.max):
        raise BuildError(f"{node.name}: its accumulator leaves int32; skip this layer")
    integers: Array = result.astype(np.int32)
    return integers


def _gemm(node: Any, x: Array, weight: Array) -> Array:
    _known(node, transA=(0,), alpha=(1.0,), beta=(1.0,))
    product: Array = x @ (weight.T if attribute(node, "transB", 0) else weight)
    return product


def _matmul(node: Any, x: Array, weight: Array) -> Array:
    product: Array = x @ weight
    return product


def _conv(node: Any, x: Array, weight: Array) -> Array:
    """Any number of spatial axes."""
    group, kernel = attribute(node, "group", 1), weight.shape[2:]
    windows = _windows(node, x, kernel)  # n, c, places..., kernel...
    spatial = len(kernel)
    outputs = []
    for part, filters in zip(np.split(windows, group, axis=1), np.split(weight, group), strict=True):
        axes = [1, *range(2 + spatial, 2 + 2 * spatial)]
        outputs.append(np.tensordot(part, filters, axes=(axes, list(range(1, 2 + spatial)))))
    result: Array = np.moveaxis(np.concatenate(outputs, axis=-1), -1, 1)
    return result


def _conv_transpose(node: Any, x: Array, weight: Array) -> Array:
    """Each input value spreads its kernel over the output."""
    group, kernel = attribute(node, "group", 1), weight.shape[2:]
    strides, dilations, _ = _spatial(node, len(kernel))
    sizes, starts = _transposed_sizes(node, x.shape[2:], kernel)
    parts = []
    for part, filters in zip(np.split(x, group, axis=1), np.split(weight, group), strict=True):
        products = np.tensordot(part, filters, axes=(1, 0))  # n, places..., channels, kernel...
        ends = [
            (n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(x.shape[2:], strides, kernel, dilations, strict=True)
        ]
        room = [max(end, start + size) for end, start, size in zip(ends, starts, sizes, strict=True)]
        full = np.zeros((len(x), filters.shape[1], *room))
        for place in itertools.product(*map(range, kernel)):
            at = tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, n, s in zip(place, dilations, x.shape[2:], strides, strict=True)
            )
            here: Any = (..., *place)
            full[(slice(None), slice(None), *at)] += np.moveaxis(products[here], -1, 1)
        cut = tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))
        parts.append(full[(slice(None), slice(None), *cut)])
    return np.concatenate(parts, axis=1)


def _average_pool(node: Any, x: Array) -> Array:
    _known(node, ceil_mode=(0,))
    kernel = tuple(attribute(node, "kernel_shape"))
    axes = tuple(range(-len(kernel), 0))
    sums = _windows(node, x, kernel).sum(axis=axes)
    if attribute(node, "count_include_pad", 0):
        return np.asarray(sums / math.prod(kernel), np.float32)
    counts = _windows(node, np.ones_like(x[:1, :1]), kernel).sum(axis=axes)
    return np.asarray(sums / counts, np.float32)


_LAYERS = {"Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _matmul}


def _windows(node: Any, x: Array, kernel: tuple[int, ...]) -> Array:
    """What each output place sees: x padded with zeros, shape (n, c, places..., kernel...)."""
    strides, dilations, pads = _spatial(node, len(kernel))
    pads = _auto_pads(node, x.shape[2:], kernel, strides, dilations) or pads
    padded = np.pad(x, [(0, 0), (0, 0), *pads])
    wide = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    if any(window > size for window, size in zip(wide, padded.shape[2:], strict=True)):
        raise BuildError(f"{node.name}: its window of {list(wide)} is larger than its input, {list(padded.shape[2:])}")
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(padded, wide, axis=axes)
    steps = (*[slice(None, None, s) for s in strides], *[slice(None, None, d) for d in dilations])
    strided: Array = windows[(slice(None), slice(None), *steps)]
    return strided


def _spatial(node: Any, axes: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Strides, dilations and pads (before, behind) of each spatial axis."""
    strides = tuple(attribute(node, "strides", [1] * axes))
    dilations = tuple(attribute(node, "dilations", [1] * axes))
    pads = list(attribute(node, "pads", [0] * 2 * axes))
    return strides, dilations, tuple(zip(pads[:axes], pads[axes:], strict=True))


def _auto_pads(
    node: Any, sizes: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]
) -> tuple[tuple[int, int], ...] | None:
    """The pads of SAME_UPPER and SAME_LOWER; None for explicit ones."""
    mode = attribute(node, "auto_pad", b"NOTSET")
    if mode not in (b"SAME_UPPER", b"SAME_LOWER"):
        return None
    pads = []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((math.ceil(size / s) - 1) * s + (k - 1) * d + 1 - size, 0)
        small, large = total // 2, total - total // 2
        pads.append((small, large) if mode == b"SAME_UPPER" else (large, small))
    return tuple(pads)


def _transposed_sizes(node: Any, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """The sizes of a transposed convolution's output, and how much of its start is cut off."""
    _known(node, auto_pad=(b"NOTSET", b"VALID"))
    strides, dilations, pads = _spatial(node, len(kernel))
    extra = attribute(node, "output_padding", [0] * len(kernel))
    full = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(sizes, strides, kernel, dilations, extra, strict=True)
    ]
    if output_sizes := attribute(node, "output_shape"):
        cuts = [max(a - b, 0) for a, b in zip(full, output_sizes[-len(kernel) :], strict=True)]
        return list(output_sizes[-len(kernel) :]), [cut - cut // 2 for cut in cuts]  # of an odd number more in front
    result_sizes = [size - before - behind for size, (before, behind) in zip(full, pads, strict=True)]
    return result_sizes, [before for before, _ in pads]


def _known(node: Any, **allowed: tuple[Any, ...]) -> None:
    """Raises ``BuildError`` for an attribute whose value this interpreter does not know."""
    for name, values in allowed.items():
        if (value := attribute(node, name, values[0])) not in values:
            raise BuildError(f"{node.name}: {name} = {value!r} is not known to the interpreter of ascend models")


def _float(graph: Graph, node: Any, values: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of any other node, by name."""
    import onnx

    names = [name for name in dict.fromkeys([*node.input, *sorted(captured(node))]) if name]
    arrays = {name: np.asarray(values[name]) for name in names}
    described = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in arrays.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    body = onnx.helper.make_graph([node], "one", described, outputs)
    model = onnx.helper.make_model(body, opset_imports=graph.model.opset_import, ir_version=graph.model.ir_version)
    return dict(zip((output.name for output in outputs), equivalence.run(Graph(model), arrays), strict=True))


def _maker(graph: Graph, node: Any) -> str:
    maker = graph.maker(node.input[0])
    if maker is None:
        raise BuildError(f"{node.name}: dequantizes what no layer gives")
    return str(maker.name)


def _constant(graph: Graph, name: str) -> Array:
    value = graph.constant(name)
    assert value is not None, name
    return value
