"""The int8 layers of a file with quantize and dequantize nodes, as OpenVINO's kernels for AVX2 add them.

Its kernels take the channels of each place by fours, so that they are filled up to an even number; groups go as a
matrix product in the order of the kernel's rows, columns and channels. Signed bytes are moved to unsigned ones (plus
128) before they are multiplied. Exact are depthwise convolutions, and where the plugin multiplies floats. Each kind was
tried on OpenVINO 2026.4 limited to AVX2, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.export.deploy_onnxruntime import KEEP_VALUES
from qbench.quant.saturation.layer_counter import LayerCounter
from qbench.quant.saturation.onnxruntime_products import read_attributes, read_convolution
from qbench.quant.saturation.pair_sums import PairedProduct

Array = NDArray[Any]
Constants = Mapping[str, Array]
Makers = Mapping[str, Any]  # tensor -> the node that gives it
LAYERS = ("Conv", "MatMul", "Gemm")
# Multiply bytes in ways that were not tried.
NOT_MODELLED = ("ConvTranspose",)
SIGN = 128  # is added to signed bytes


@dataclass(frozen=True, kw_only=True)
class ByteLayer:
    """A ``node`` that multiplies bytes and adds them in 16 bits. ``x``: the tensor that it reads, as bytes or floats,
    each ``scale`` times a byte of the kernel less ``zero``. They are floats where operators move them first, and of
    signed bytes: OpenVINO takes another kernel where these are a result. ``weight_scales``, ``bias``: by output channel
    (or one for all)."""

    name: str
    operator: str
    node: str
    x: str
    output: str
    scale: np.float32
    zero: int
    product: PairedProduct
    weight_scales: Array
    bias: Array | None

    def counter(self) -> LayerCounter:
        """What counts its sums."""
        weight = self.product.weight.astype(np.int32)
        return LayerCounter(name=self.name, operator=self.operator, product=self.product, weight=weight)

    def read_bytes(self, x: Array) -> Array:
        """The unsigned bytes that its kernel multiplies, in the order of ``LayerCounter``, for the tensor ``x``."""
        levels = x if x.dtype == np.uint8 else (np.rint(x / self.scale) + self.zero).astype(np.uint8)
        return levels if self.product.kernel else levels.reshape(-1, levels.shape[-1])

    def finish(self, sums: Array, channel: Array) -> Array:
        """The floats for exact sums less zero points, each of an output ``channel``."""
        scales = self.scale * self.weight_scales.astype(np.float32)
        values: Array = sums.astype(np.float32) * scales[channel % scales.size]  # one for each, or one for all
        return values if self.bias is None else values + self.bias[channel]


@dataclass(frozen=True, kw_only=True)
class _Quantized:
    """The ``tensor`` of floats that a DequantizeLinear makes of the bytes of ``source``, and those of a constant
    (``levels``, None for what is computed)."""

    tensor: str
    source: str
    levels: Array | None
    scale: Array
    zero: Array


def list_makers(model: Any) -> dict[str, Any]:
    """Each tensor of a graph with the node that gives it."""
    return {name: node for node in model.graph.node for name in node.output if name}


def read_layer(node: Any, makers: Makers, constants: Constants) -> ByteLayer | str | None:
    """The layer that a node is; why it is not modelled, in words; None where its sums are exact on every CPU, or where
    it multiplies floats."""
    if node.op_type not in (*LAYERS, *NOT_MODELLED):
        return None
    x = _read_quantized(_behind(node.input[0], makers), makers, constants)
    weight = _read_quantized(node.input[1], makers, constants)
    if x is None or weight is None:
        return None
    attributes, bias = read_attributes(node), _read_bias(node, makers, constants)
    why = bias if isinstance(bias, str) else _explain_other(node, attributes, x, weight)
    if why is not None or weight.levels is None or isinstance(bias, str):
        return why
    zero = int(x.zero.reshape(-1)[0]) + (SIGN if x.zero.dtype == np.int8 else 0)
    product = _read_product(node, attributes, weight.levels, zero)
    if not isinstance(product, PairedProduct):
        return product
    return ByteLayer(
        name=weight.source.partition(".weight")[0],
        operator=node.op_type,
        node=node.name,
        x=x.source if node.input[0] == x.tensor and x.zero.dtype == np.uint8 else node.input[0],
        output=node.output[0],
        scale=np.float32(x.scale.reshape(-1)[0]),
        zero=zero,
        product=product,
        weight_scales=weight.scale.reshape(-1),
        bias=bias,
    )


def _explain_other(node: Any, attributes: Mapping[str, Any], x: _Quantized, weight: _Quantized) -> str | None:
    """Why a node is none of the layers that were tried, in words; None where it is one."""
    if node.op_type in NOT_MODELLED:
        return f"{node.op_type} is not modelled"
    if weight.levels is None or x.levels is not None:
        return "both of its operands are computed"
    if weight.zero.any() or weight.levels.dtype != np.int8:
        return "its weights are no signed bytes around zero"
    if x.zero.dtype == np.int8 and x.zero.any():
        return "signed bytes around another number than zero are not modelled"
    if x.scale.size > 1:
        return "its input has several scales"
    if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or attributes.get("transA"):
        return "its padding or its transposed input is not modelled"
    if attributes.get("alpha", 1.0) != 1 or attributes.get("beta", 1.0) != 1:
        return "factors of its product are not modelled"
    return None


def _read_product(node: Any, attributes: Mapping[str, Any], weight: Array, zero: int) -> PairedProduct | str | None:
    if node.op_type != "Conv":
        if weight.ndim != 2:
            return f"its weight has {weight.ndim} dimensions"
        return PairedProduct(weight=weight if attributes.get("transB") else weight.T, pairing="even", zero_point=zero)
    product = read_convolution(weight, attributes, zero)
    depthwise = weight.shape[1] == 1 and product.groups > 1 and len(weight) == product.groups
    if depthwise:
        return None
    return product if product.groups > 1 else replace(product, pairing="even")


def _behind(name: str, makers: Makers) -> str:
    """The tensor whose values a tensor holds, before operators that keep them."""
    while (node := makers.get(name)) is not None and node.op_type in KEEP_VALUES:
        name = node.input[0]
    return name


def _read_quantized(name: str, makers: Makers, constants: Constants) -> _Quantized | None:
    """The bytes behind a tensor of floats; None where a DequantizeLinear with constant scales does not give it."""
    node = makers.get(name)
    if node is None or node.op_type != "DequantizeLinear":
        return None
    levels, scale = constants.get(node.input[0]), constants.get(node.input[1])
    zero = constants.get(node.input[2]) if len(node.input) > 2 else np.zeros(1, np.uint8)
    if scale is None or zero is None:
        return None
    return _Quantized(tensor=name, source=node.input[0], levels=levels, scale=scale, zero=zero)


def _read_bias(node: Any, makers: Makers, constants: Constants) -> Array | str | None:
    """What a layer adds to its sums, by output channel; None: nothing; why it is not known, in words."""
    name = node.input[2] if len(node.input) > 2 else ""
    if not name:
        return None
    quantized = _read_quantized(name, makers, constants)
    if quantized is not None and quantized.levels is not None:
        return (quantized.levels.astype(np.float32) * quantized.scale.astype(np.float32)).reshape(-1)
    bias = constants.get(name)
    return "its bias is computed" if bias is None else bias.astype(np.float32).reshape(-1)
