"""The products of bytes in a graph that ONNX Runtime has optimized, as its kernels for AVX2 add them.

With unsigned activations and signed weights neighbours are added in 16 bits (``MlasGemmU8S8KernelAvx2``), in the order
of the kernel's rows, columns and channels. Exact are signed or unsigned bytes on both sides, ConvInteger (its weight is
the left operand), and depthwise convolutions with one output for each input, which have a kernel of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.export.deploy_onnxruntime import KEEP_VALUES
from qbench.quant.onnx.graph.layers import subgraphs
from qbench.quant.saturation.layer_counter import LayerCounter
from qbench.quant.saturation.pair_sums import TOP, PairedProduct

Array = NDArray[Any]
Constants = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class Operands:
    """Which inputs of an operator are what; None where it has no such input."""

    x: int = 0
    weight: int
    x_zero: int
    weight_zero: int
    x_scale: int | None = None
    weight_scale: int | None = None
    y_scale: int | None = None
    y_zero: int | None = None
    bias: int | None = None


_BYTES = Operands(x_scale=1, x_zero=2, weight=3, weight_scale=4, weight_zero=5, y_scale=6, y_zero=7)
OPERATORS = {
    "QLinearConv": replace(_BYTES, bias=8),
    "QLinearMatMul": _BYTES,
    "QGemm": replace(_BYTES, bias=6, y_scale=7, y_zero=8),
    "MatMulInteger": Operands(weight=1, x_zero=2, weight_zero=3),
    "MatMulIntegerToFloat": Operands(weight=1, x_scale=2, weight_scale=3, x_zero=4, weight_zero=5, bias=6),
}
# Multiply bytes inside of themselves, in ways that are not modelled.
NOT_MODELLED = ("QAttention", "DynamicQuantizeLSTM", "QLinearConvTranspose")


@dataclass(frozen=True, kw_only=True)
class IntegerLayer:
    """A node of ONNX Runtime that adds in 16 bits on AVX2. ``inputs``: the tensors that it reads, empty where it has
    none there; ``weight``: what its ``product`` multiplies, less its zero point."""

    name: str
    operator: str
    operands: Operands
    inputs: tuple[str, ...]
    output: str
    product: PairedProduct
    weight: Array
    channels_last: bool
    alpha: float = 1.0

    def counter(self) -> LayerCounter:
        """What counts its sums."""
        return LayerCounter(name=self.name, operator=self.operator, product=self.product, weight=self.weight)


def split_dynamic(model: Any) -> None:
    """Writes DynamicQuantizeMatMul as the two operators that it is, so that its bytes are a tensor of the graph."""
    import onnx

    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if node.op_type == "DynamicQuantizeMatMul":
            x, scale, zero = (f"{node.output[0]}_{what}" for what in ("bytes", "scale", "zero"))
            quantize = onnx.helper.make_node("DynamicQuantizeLinear", [node.input[0]], [x, scale, zero])
            weight, weight_scale, *more = node.input[1:]
            inputs = [x, weight, scale, weight_scale, zero, *more]
            product = onnx.helper.make_node(
                "MatMulIntegerToFloat", inputs, list(node.output), name=node.name, domain=node.domain
            )
            model.graph.node.extend([quantize, product])
        else:
            model.graph.node.append(node)


def read_largest(model: Any, constants: Constants) -> dict[str, int]:
    """Tensor of unsigned bytes -> the largest that it has, where a Clip of bytes gives it, at once or by operators that
    keep values."""
    largest: dict[str, int] = {}
    for node in model.graph.node:
        end = constants.get(_input(node, 2)) if node.op_type == "Clip" else None
        if end is not None and end.dtype == np.uint8:
            largest[node.output[0]] = int(end)
        elif node.op_type in KEEP_VALUES and node.input[0] in largest:
            largest[node.output[0]] = largest[node.input[0]]
    return largest


def read_layer(node: Any, constants: Constants, largest: Mapping[str, int]) -> IntegerLayer | str | None:
    """The layer that a node is; why it is not modelled, in words; None where its sums are exact on every CPU.
    ``largest``: as ``read_largest`` gives it."""
    if node.op_type in NOT_MODELLED:
        return f"{node.op_type} is not modelled"
    if any(inner.op_type in (*OPERATORS, *NOT_MODELLED) for inner in _within(node)):
        return f"int8 layers within {node.op_type} are not modelled"
    operands = OPERATORS.get(node.op_type)
    if operands is None or not _adds_in_16_bits(node, operands, constants):
        return None
    weight, attributes = constants.get(_input(node, operands.weight)), read_attributes(node)
    if weight is None:
        return "its signed bytes are computed, not constant"
    if weight.ndim != 2 and "Conv" not in node.op_type:
        return f"its weight has {weight.ndim} dimensions"
    if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or attributes.get("transA"):
        return "its padding or its transposed input is not modelled"
    convolution = "Conv" in node.op_type
    weight = weight if convolution or attributes.get("transB") else weight.T
    if convolution and weight.shape[1] == 1 and len(weight) == attributes.get("group", 1):
        return None
    zero = constants.get(_input(node, operands.weight_zero), np.zeros(1, np.int8)).reshape(-1)
    x_zero = int(constants.get(_input(node, operands.x_zero), np.zeros(1, np.uint8)).flat[0])
    product = (
        read_convolution(weight, attributes, x_zero) if convolution else PairedProduct(weight=weight, pairing="flat")
    )
    top = max(x_zero, largest.get(node.input[operands.x], TOP))
    return IntegerLayer(
        name=_name(node, operands),
        operator=node.op_type,
        operands=operands,
        inputs=tuple(node.input),
        output=node.output[0],
        product=replace(product, top=top),
        weight=weight.astype(np.int32) - zero.astype(np.int32).reshape(-1, *[1] * (weight.ndim - 1)),
        channels_last=not convolution or bool(attributes.get("channels_last")),
        alpha=float(attributes.get("alpha", 1.0)),
    )


def _within(node: Any) -> Iterator[Any]:
    """The nodes of the graphs within a node."""
    for _, graph in subgraphs(node):
        for inner in graph.node:
            yield inner
            yield from _within(inner)


def _adds_in_16_bits(node: Any, operands: Operands, constants: Constants) -> bool:
    """Whether unsigned bytes are multiplied by signed ones."""
    x_zero, zero = (constants.get(_input(node, place)) for place in (operands.x_zero, operands.weight_zero))
    weight = constants.get(_input(node, operands.weight), zero)
    unsigned = x_zero is None or x_zero.dtype == np.uint8  # what is computed is the dynamic quantizer's, unsigned
    return unsigned and weight is not None and weight.dtype == np.int8


def read_convolution(weight: Array, attributes: Mapping[str, Any], zero_point: int) -> PairedProduct:
    """The sums of a convolution with the attributes of an ONNX node, in flat order."""
    axes = weight.ndim - 2
    pads = list(attributes.get("pads", [0] * 2 * axes))
    return PairedProduct(
        weight=weight,
        pairing="flat",
        stride=tuple(attributes.get("strides", [1] * axes)),
        dilation=tuple(attributes.get("dilations", [1] * axes)),
        pads=tuple(zip(pads[:axes], pads[axes:], strict=True)),
        groups=int(attributes.get("group", 1)),
        zero_point=zero_point,
    )


def _name(node: Any, operands: Operands) -> str:
    """The torch module that a node came from where its weight is called after it, else its own name."""
    weight = _input(node, operands.weight)
    module = weight.partition(".weight")[0] if ".weight" in weight else ""
    return str(module or node.name or node.output[0])


def _input(node: Any, place: int) -> str:
    return str(node.input[place]) if place < len(node.input) else ""


def read_attributes(node: Any) -> dict[str, Any]:
    """The attributes of a node by name."""
    import onnx

    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def finish(layer: IntegerLayer, values: Sequence[Array | None], sums: Array, channel: Array) -> Array:
    """What a layer gives for exact sums of 32 bits without zero points, each of an output ``channel``; ``values`` are
    those of its inputs. Arithmetic and order are those of ONNX Runtime (``MlasRequantizeOutput``)."""

    def value(place: int | None) -> Array | None:
        return None if place is None or place >= len(values) else values[place]

    def of_channels(array: Array) -> Array:
        chosen: Array = array.reshape(-1)[channel % array.size]  # one for each, or one for all
        return chosen

    operands, bias = layer.operands, value(layer.operands.bias)
    x_scale, weight_scale, y_scale = (
        value(place) for place in (operands.x_scale, operands.weight_scale, operands.y_scale)
    )
    if bias is not None and bias.dtype == np.int32:
        sums = sums + of_channels(bias)
    if x_scale is None or weight_scale is None:
        return sums
    scale = np.float32(layer.alpha) * x_scale.flat[0] * of_channels(weight_scale)
    if y_scale is None:
        result: Array = sums.astype(np.float32) * scale
        return result if bias is None or bias.dtype == np.int32 else result + of_channels(bias)
    return _requantized(sums, scale / y_scale.flat[0], value(operands.y_zero))


def _requantized(sums: Array, scale: Array, zero: Array | None) -> Array:
    """Sums as bytes: clipped to what they can be, rounded to the nearest even."""
    zero = np.zeros(1, np.uint8) if zero is None else zero
    ends, offset = np.iinfo(zero.dtype), int(zero.flat[0])
    scaled = np.clip(sums.astype(np.float32) * scale, np.float32(ends.min - offset), np.float32(ends.max - offset))
    return (np.rint(scaled).astype(np.int32) + offset).astype(zero.dtype)
