"""Sites + record -> the integers that every output holds: int8 weights, int32 biases, and what is read quantized.

The fake-quant model and all deploy models are made from these, so that they agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError, UsageError
from qbench.quant.affine import HIGH, LOW
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.sites import Record, Scales, Sites, WeightSite
from qbench.quant.onnx.weights import weight_scales
from qbench.quant.scale_rules import QParams

Array = NDArray[Any]
_INT32 = np.iinfo(np.int32)
# The steps that a bias may have after widening; float32 rounds the product of both scales.
_HIGHEST = _INT32.max * (1 - 1e-6)
_BYTE = 255  # the largest distance of a byte from its zero point


@dataclass(frozen=True, kw_only=True)
class Activation:
    """A tensor that is quantized with ``params`` for its ``readers`` (node name, input position)."""

    tensor: str
    params: QParams
    readers: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class QuantizedLayer:
    """A layer with a quantized weight.

    ``weight``: int8 in its shape, times ``scale`` (float32, a scalar, or one for each channel along ``axis``).
    ``activation``: of its first input; None where that stays float, and with it the bias. ``step``: s_d s_w as float32,
    what one step of the int32 accumulator stands for, a scalar or one for each output channel. ``bias``: int32, one for
    each output channel, in those steps; its name is ``bias_tensor``.
    """

    name: str
    tensor: str
    weight: Array
    scale: Array
    axis: int | None
    activation: QParams | None = None
    step: Array | None = None
    bias: Array | None = None
    bias_tensor: str = ""


def activations(sites: Sites, record: Record) -> tuple[Activation, ...]:
    """The quantized activations in the order of the graph. A tensor whose readers have scales of their own in the
    record is one for each. Raises ``UsageError`` where the record lacks a scale."""
    readers_of: dict[tuple[str, QParams], list[tuple[str, int]]] = {}
    for site in sites.activations:
        for key, reader in site.keys.items():
            readers_of.setdefault((site.tensor, _params(record, key)), []).append(reader)
    return tuple(
        Activation(tensor=tensor, params=params, readers=tuple(readers))
        for (tensor, params), readers in readers_of.items()
    )


def layers(graph: Graph, sites: Sites, record: Record) -> Iterator[QuantizedLayer]:
    """The layers with quantized weights in the order of the sites, each made when it is asked for.

    Raises ``BuildError`` for a bias that is out of int32, and ``UsageError`` where the record lacks a scale or has
    another number of them than the weight has channels.
    """
    inputs = {reader: activation.params for activation in activations(sites, record) for reader in activation.readers}
    record = holding(graph, sites, record)
    for site in sites.weights:
        yield _layer(graph, site, record, inputs.get((site.layer, 0)))


def holding(graph: Graph, sites: Sites, record: Record) -> Record:
    """The record with a wider step for each channel of weights whose bias would leave int32, alone or with the largest
    sum of products: weights that are next to nothing beside their bias. A product of theirs changes by at most
    255 / 2^32 of that bias, which is what float32 loses when it adds them. One scale for all channels stays as it
    is."""
    inputs = {reader: activation.params for activation in activations(sites, record) for reader in activation.readers}
    enlarged = dict(record)
    for site in sites.weights:
        activation, own = inputs.get((site.layer, 0)), enlarged.get(site.layer, Scales())
        bias = _bias(graph.node(site.layer))
        if site.axis is None or activation is None or bias is None or not own.scale_w:
            continue
        value = _known(graph, bias)
        # A ConvTranspose of several groups has one scale for a channel of each.
        largest = np.abs(value.astype(np.float64)).reshape(-1, len(own.scale_w)).max(axis=0)
        weights = np.moveaxis(_known(graph, site.tensor), site.axis, 0).reshape(len(own.scale_w), -1)
        products = _BYTE * np.abs(weights).sum(axis=1, dtype=np.float64)  # in steps of a weight; half a step for each
        least = (largest / activation.scale + products) / (_HIGHEST - _BYTE / 2 * weights.shape[1])
        if (least > np.asarray(own.scale_w)).any():
            enlarged[site.layer] = replace(own, scale_w=tuple(np.maximum(own.scale_w, least).tolist()))
    return enlarged


def _known(graph: Graph, name: str) -> Array:
    value = graph.constant(name)
    assert value is not None, name
    return value


def _bias(node: Any) -> str | None:
    """The name of a layer's bias; None for one without."""
    return str(node.input[2]) if node.op_type != "MatMul" and len(node.input) > 2 and node.input[2] else None


def out_of_int32(values: Array, layer: str) -> None:
    """Raises ``BuildError`` where whole numbers (float64) do not fit int32."""
    wrong = np.flatnonzero(~((values >= _INT32.min) & (values <= _INT32.max)))
    if wrong.size:
        raise BuildError(
            f"{layer}: its bias is {values[wrong[0]]:.4g} steps of scale_d * scale_w in channel {wrong[0]}, which "
            "int32 does not hold; skip this layer (skip_layers)"
        )


def _layer(graph: Graph, site: WeightSite, record: Record, activation: QParams | None) -> QuantizedLayer:
    scales = record.get(site.layer, Scales()).scale_w
    weight = _known(graph, site.tensor)
    channels = 1 if site.axis is None else weight.shape[site.axis]
    if len(scales) != channels:
        raise UsageError(
            f"{site.layer}: {len(scales)} scale_w in the record where its weight needs {channels}; quantize again"
        )
    integer_layer = QuantizedLayer(
        name=site.layer,
        tensor=site.tensor,
        weight=weight_scales.quantized(weight, scales, site.axis),
        scale=np.asarray(scales if site.axis is not None else scales[0], np.float32),
        axis=site.axis,
    )
    return integer_layer if activation is None else _with_input(graph, integer_layer, activation)


def _with_input(graph: Graph, layer: QuantizedLayer, activation: QParams) -> QuantizedLayer:
    """bias_int32 = round(b / (s_d s_w)), half to even."""
    node = graph.node(layer.name)
    step = np.asarray(np.float32(activation.scale) * layer.scale, np.float32)
    if node.op_type == "ConvTranspose" and step.ndim:  # its weight holds the channels of one group
        step = np.tile(step, attribute(node, "group", 1))
    name = _bias(node)
    if name is None:
        return replace(layer, activation=activation, step=step)
    steps = np.rint(_known(graph, name).astype(np.float64) / step)
    out_of_int32(steps, layer.name)
    bias = steps.astype(np.int32)
    return replace(layer, activation=activation, step=step, bias=bias, bias_tensor=name)


def _params(record: Record, key: str) -> QParams:
    scales = record.get(key, Scales())
    if scales.scale_d is None:
        raise UsageError(f"{key}: no scale_d in the record; run qbench onnx calibrate")
    return QParams(scale=scales.scale_d, zero_point=scales.offset_d or 0)


def saturated(params: QParams, low: float, high: float) -> tuple[int, int]:
    """What a tensor's values are clipped to as integers where they are clipped to [low, high] before."""
    ends = np.clip(np.rint(np.array([low, high]) / params.scale) + params.zero_point, LOW, HIGH)
    return int(ends[0]), int(ends[1])


def replaced(graph: Graph, readers: Iterator[tuple[tuple[str, int], str]], nodes: list[Any]) -> None:
    """Adds nodes to a graph, and gives readers (node name, position) other tensors to read."""
    instead = dict(readers)
    with graph.editing() as body:
        for node in body:
            for position in range(len(node.input)):
                if (node.name, position) in instead:
                    node.input[position] = instead[node.name, position]
        body += nodes
