"""Balance between activations and weights: hard channels of an activation are made easier, its weights harder.

Each channel c of a layer's input X is divided by f_c = max|X_c|^a / max|W_c|^(1 - a) and the weights that read it are
multiplied by f_c: the float network stays the same, the quantized one has less to round. Xiao et al. 2023
(SmoothQuant); AMCT calls it DMQ. The division is folded into the layer that makes X where only scaling lies between,
otherwise it is a Mul before a matrix product; before a convolution, the activation is left as it is.

Divided channels all reach towards the end of one range, so that one whose maximum was not seen is clipped: what is
divided by is the maximum as it may be in other data (``expected``), and a layer is balanced only where that makes its
error much smaller on data that did not make the range (``balance_error``). EfficientNet-Lite0, a = 0.5, calibrated on
128 crops of ten photos, SQNR of the logits on ten others: 17.7 dB without balance; every activation divided by the
maximum seen 10.9 (on the calibration photos themselves 19.5 against 18.3), by the expected one 15.1, where it helps at
all 16.5; as it is now, nothing is left to balance there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.sites import Sites

Array = NDArray[Any]
# f is kept within these: a channel that is almost silent says little about what it will be.
LEAST, GREATEST = 1e-3, 1e3
# The largest f over the smallest: beyond it a quiet channel gains nothing.
SPREAD = 64
# Weights below this share of the largest say nothing about their channel: it gets the largest f, since a bias in steps
# of ever smaller scales leaves the range of int32.
FAINT = 1e-3
EXPONENT = 0.5  # half of the difficulty to the weights: the paper's choice, and AMCT's
CHANNEL_AXIS = {"Conv": 1, "ConvTranspose": 1, "Gemm": -1, "MatMul": -1}
# f(x / c) = f(x) / c for c > 0, and channels stay where they are.
HOMOGENEOUS = ("Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Identity")


@dataclass(frozen=True, kw_only=True)
class Group:
    """The layers that read one activation ``tensor`` as their input and are balanced with one ``exponent``; ``axis``:
    where its channels are; ``free``: the weights of each input channel have a scale of their own (depthwise), so that
    they do not get harder."""

    tensor: str
    layers: tuple[str, ...]
    axis: int
    exponent: float = EXPONENT
    free: bool = False


def groups(graph: Graph, sites: Sites, exponents: Mapping[str, float] | None = None) -> tuple[Group, ...]:
    """What can be balanced: activations that layers with quantized weights read, in the order of the graph;
    ``exponents``: of the layers that are to be balanced (None: all, by ``EXPONENT``)."""
    weighted = {site.layer for site in sites.weights}
    free = {site.layer for site in sites.weights if _is_free(graph, graph.node(site.layer), site.axis)}
    enabled = dict.fromkeys(weighted, EXPONENT) if exponents is None else exponents
    readers: dict[tuple[str, int, float], list[str]] = {}
    for site in sites.activations:
        for name, position in site.keys.values():
            kind = graph.node(name).op_type
            if position == 0 and name in weighted and name in enabled and kind in CHANNEL_AXIS:
                readers.setdefault((site.tensor, CHANNEL_AXIS[kind], enabled[name]), []).append(name)
    return tuple(
        Group(tensor=tensor, layers=tuple(dict.fromkeys(names)), axis=axis, exponent=a, free=free.issuperset(names))
        for (tensor, axis, a), names in readers.items()
    )


def largest(values: Array, axis: int) -> Array:
    """max|X_c| of each channel, float64; 0 of no values."""
    others = tuple(dimension for dimension in range(values.ndim) if dimension != axis % values.ndim)
    largest_of_channels: Array = np.maximum(
        values.max(axis=others, initial=0), -values.min(axis=others, initial=0)
    ).astype(np.float64)
    return largest_of_channels


def expected(first: Array, second: Array) -> Array:
    """max|X_c| as it may be in other data: a channel that reaches r times as far in one half of the data as in the
    other may reach r times as far again, but not beyond the largest channel. ``first``, ``second``: max|X_c| of the
    halves."""
    low, high = np.minimum(first, second), np.maximum(first, second)
    top = np.full_like(high, high.max(initial=0.0))
    again = np.divide(high * high, low, out=top.copy(), where=low > 0)
    largest_of_channels: Array = np.where(high > 0, np.minimum(again, top), 0.0)
    return largest_of_channels


def needs_mul(graph: Graph, group: Group) -> bool:
    """Whether balance would put a float Mul before a convolution. Behind another one, ONNX Runtime would then compute
    that in float, or round what is divided on the scale that balance was to make better; before the first one, it
    costs a pass over the input."""
    return group.axis == 1 and _producers(graph, group) is None


def factors(graph: Graph, group: Group, activation: Array, a: float) -> Array:
    """f of each channel, float32; the largest where a channel is zero or its weights are next to nothing.
    ``activation``: max|X_c|; the exponent ``a`` is 1 in a ``free`` group."""
    weight = np.max([_weight_largest(graph, graph.node(name), len(activation)) for name in group.layers], axis=0)
    a = 1.0 if group.free else a
    usable = (activation > 0) & (weight > 0)
    raw = np.where(usable, activation, 1.0) ** a / np.where(usable, weight, 1.0) ** (1 - a)
    bounded = np.clip(raw, LEAST, GREATEST)
    solid = usable & (weight >= FAINT * weight.max())
    top = bounded[solid].max(initial=0.0)
    f: Array = np.where(solid, np.maximum(bounded, top / SPREAD), top or 1.0)
    return f.astype(np.float32)


def apply(graph: Graph, factors: Mapping[Group, Array]) -> Graph:
    """A copy of the graph in which every group is balanced by its factors."""
    changed = graph.copy()
    for group, f in factors.items():
        chain = _producers(changed, group)
        for name in group.layers:
            _scale_weight(changed, changed.node(name), f)
        if chain is None:
            _insert_division(changed, group, f)
        else:
            for tensor, axis in chain:
                _scale_constant(changed, tensor, axis, 1.0 / f)
    return changed


def _weight_largest(graph: Graph, node: Any, channels: int) -> Array:
    """max|W_c| over what reads input channel c."""
    weight = _weight(graph, node)
    axis = _input_axis(node)
    others = tuple(dimension for dimension in range(weight.ndim) if dimension != axis)
    if node.op_type == "Conv":
        split = weight.reshape(channels // weight.shape[1], -1, *weight.shape[1:])  # group, output, input, kernel
        largest_of_channels: Array = np.abs(split).max(axis=(1, *range(3, split.ndim))).reshape(channels)
    else:
        largest_of_channels = np.abs(weight).max(axis=others)
    return largest_of_channels


def _is_free(graph: Graph, node: Any, axis: int | None) -> bool:
    """Whether no scale of a layer's weight covers two input channels."""
    return node.op_type == "Conv" and axis == 0 and _weight(graph, node).shape[1] == 1


def _input_axis(node: Any) -> int:
    """The axis of the input channels in a weight."""
    if node.op_type == "Gemm":
        return 1 if attribute(node, "transB", 0) else 0
    return 1 if node.op_type == "Conv" else 0


def _weight(graph: Graph, node: Any) -> Array:
    value = graph.constant(node.input[1])
    assert value is not None, f"{node.name} has no constant weight"
    return value


def _scale_weight(graph: Graph, node: Any, f: Array) -> None:
    """Multiplies what reads channel c by f_c."""
    weight, axis = _weight(graph, node), _input_axis(node)
    if node.op_type == "Conv":
        split = weight.reshape(len(f) // weight.shape[1], -1, *weight.shape[1:])
        scaled = split * f.reshape(split.shape[0], 1, split.shape[2], *[1] * (split.ndim - 3))
        graph.set_constant(node.input[1], scaled.reshape(weight.shape))
    else:
        graph.set_constant(
            node.input[1], weight * f.reshape([-1 if dimension == axis else 1 for dimension in range(weight.ndim)])
        )


def _scale_constant(graph: Graph, tensor: str, axis: int, by: Array) -> None:
    """Multiplies a constant along ``axis``; one value for all channels becomes one for each."""
    value = graph.constant(tensor)
    assert value is not None, f"{tensor} is not constant"
    shape = [1] * max(value.ndim, 1)
    shape[axis] = len(by)
    graph.set_constant(tensor, (value * by.reshape(shape)).astype(value.dtype))


def _producers(graph: Graph, group: Group) -> list[tuple[str, int]] | None:
    """The constants (and their axes) whose division divides the group's activation and nothing else; None where
    there are none."""
    tensor, within = group.tensor, {(name, 0) for name in group.layers}
    producers: list[tuple[str, int]] = []
    while True:
        readers = {(node.name, position) for node, position in graph.readers(tensor)}
        node = graph.maker(tensor)
        if node is None or graph.is_output(tensor) or not readers <= within or node.output[0] != tensor:
            return None
        step = _constants(graph, node, group.axis)
        if step is None:
            return None
        constants, ahead = step
        producers += constants
        if ahead is None:
            return producers if all(_ours(graph, name) for name, _ in producers) else None
        tensor, within = ahead, {(node.name, list(node.input).index(ahead))}


def _ours(graph: Graph, tensor: str) -> bool:
    """Whether a constant is an initializer that one node reads once, so that it may change."""
    return graph.maker(tensor) is None and len(graph.readers(tensor)) == 1


def _constants(graph: Graph, node: Any, axis: int) -> tuple[list[tuple[str, int]], str | None] | None:
    """What a node that makes the activation contributes: its constants to divide, and the input that has to be
    divided as well (None: nothing more); None where the node cannot be passed."""
    kind = node.op_type
    if kind in HOMOGENEOUS and (axis == 1 or kind in ("Relu", "LeakyRelu", "Identity")):
        return [], node.input[0]
    if kind == "Conv" and axis == 1:
        places = [(node.input[1], 0), *_bias(node, 0)]
    elif kind == "ConvTranspose" and axis == 1 and attribute(node, "group", 1) == 1:
        places = [(node.input[1], 1), *_bias(node, 0)]
    elif kind == "Gemm" and axis == -1:
        places = [(node.input[1], 0 if attribute(node, "transB", 0) else 1), *_bias(node, -1)]
    elif kind == "LayerNormalization" and axis == -1 and attribute(node, "axis", -1) == -1:
        places = [(node.input[1], -1), *_bias(node, -1)]
    elif kind == "MatMul" and axis == -1:
        places = [(node.input[1], -1)]
    elif kind == "Add" and axis == -1:
        return _added(graph, node)
    else:
        return None
    return (places, None) if all(graph.constant(name) is not None for name, _ in places) else None


def _bias(node: Any, axis: int) -> list[tuple[str, int]]:
    """The bias of a layer, where it has one."""
    return [(node.input[2], axis)] if len(node.input) > 2 and node.input[2] else []


def _added(graph: Graph, node: Any) -> tuple[list[tuple[str, int]], str | None] | None:
    """A bias that is added behind a MatMul: the constant, and the other summand."""
    for name, other in (tuple(node.input), tuple(node.input)[::-1]):
        value = graph.constant(name)
        if value is not None and value.ndim <= 1 and graph.constant(other) is None:
            return [(name, -1)], other
    return None


def _insert_division(graph: Graph, group: Group, f: Array) -> None:
    """A Mul by 1 / f before the group's layers, which then read its output."""
    import onnx

    rank = _weight(graph, graph.node(group.layers[0])).ndim
    shape = [1, len(f), *[1] * (rank - 2)] if group.axis == 1 else [len(f)]
    by = graph.add_constant(f"{group.tensor}_balance", (1.0 / f).reshape(shape).astype(np.float32))
    divided = graph.fresh(f"{group.tensor}_balanced")
    name = graph.fresh(f"{group.layers[0]}_balance")
    with graph.editing() as nodes:
        for node in nodes:
            if node.name in group.layers:
                node.input[0] = divided
        nodes.append(onnx.helper.make_node("Mul", [group.tensor, by], [divided], name=name))
    infos = [value for value in (*graph.model.graph.value_info, *graph.model.graph.input) if value.name == group.tensor]
    for value in infos[:1]:
        graph.model.graph.value_info.add().CopyFrom(value)
        graph.model.graph.value_info[-1].name = divided
    graph.reindex()
