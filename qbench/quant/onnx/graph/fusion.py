"""Scaling that stands alone behind a layer goes into its weight and bias: BatchNorm, a Mul or an Add of constants.

With y = a (W x + b) + c per output channel the layer gets the weight a W and the bias a b + c. Each fusion is checked
in ONNX Runtime, on random inputs, against the nodes it replaces, and left out where the two differ.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.graph import equivalence
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import STANDARD

Array = NDArray[Any]
LAYERS = ("Conv", "ConvTranspose", "Gemm")
LARGEST = 2**26  # elements of an input on which a fusion is tried; dilations may ask for any number


@dataclass(frozen=True, kw_only=True)
class Fused:
    """What a layer took in: the names of the nodes that vanished."""

    layer: str
    nodes: tuple[str, ...]


def fuse(graph: Graph, skip: Collection[str] = ()) -> tuple[Fused, ...]:
    """Fuses in place; layers (and nodes behind them) named in ``skip`` stay as they are."""
    fused = []
    with graph.editing() as nodes:
        removed: set[str] = set()
        for node in nodes:
            if node.op_type in LAYERS and node.domain in STANDARD and node.name not in skip:
                members = _into(graph, node, skip)
                removed.update(members)
                fused += [Fused(layer=node.name, nodes=members)] if members else []
        nodes[:] = [node for node in nodes if node.name not in removed]
    graph.drop_unused()
    return tuple(fused)


def _into(graph: Graph, node: Any, skip: Collection[str]) -> tuple[str, ...]:
    """A layer takes in what follows it, one node after the other; their names. They stay in the graph until all layers
    are done."""
    names: list[str] = []
    while (follower := _follower(graph, node)) is not None and follower.name not in skip:
        if not _take_in(graph, node, follower):
            break
        names.append(follower.name)
    return tuple(names)


def _follower(graph: Graph, node: Any) -> Any | None:
    """The only node that reads a layer's output, where nothing else does."""
    readers = graph.readers(node.output[0])
    if len(readers) != 1 or graph.is_output(node.output[0]) or readers[0][1] < 0:
        return None
    return readers[0][0] if readers[0][0].domain in STANDARD else None


def _take_in(graph: Graph, node: Any, follower: Any) -> bool:
    """Fuses one node; False, and nothing is changed, where it is no scaling per channel or the result differs."""
    weight = graph.constant(node.input[1])
    bias = graph.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if weight is None or weight.dtype != np.float32 or (bias is None and len(node.input) > 2 and node.input[2]):
        return False
    if not _fits(node, weight, bias):
        return False
    scaling = _scaling(graph, node, follower, _channels(node, weight))
    if scaling is None:
        return False
    a, c = scaling
    fused_weight = (weight * _along(node, weight, a)).astype(np.float32)
    fused_bias = ((0.0 if bias is None else bias.astype(np.float64)) * a + c).astype(np.float32)
    if not _equal(graph, node, follower, fused_weight, fused_bias):
        return False
    inputs = [node.input[0], graph.own_constant(node, 1, fused_weight), graph.own_constant(node, 2, fused_bias)]
    del node.input[:]
    node.input.extend(inputs)
    node.output[0] = follower.output[0]
    return True


def _fits(node: Any, weight: Array, bias: Array | None) -> bool:
    """Whether a layer's constants have the dimensions that its operator takes. A file from elsewhere may say otherwise;
    a runtime that runs such a layer says what is wrong."""
    if node.op_type == "Gemm":
        if weight.ndim != 2:
            return False
        return bias is None or (bias.ndim <= 2 and bias.shape[-1:] in ((), (1,), (_channels(node, weight),)))
    spatial, group = weight.ndim - 2, int(attribute(node, "group", 1))
    if spatial < 1 or group < 1 or weight.shape[0] % group:
        return False
    if len(attribute(node, "dilations", [1] * spatial)) != spatial:
        return False
    return bias is None or bias.shape == (_channels(node, weight),)


def _channels(node: Any, weight: Array) -> int:
    """How many outputs a layer has."""
    if node.op_type == "Conv":
        return int(weight.shape[0])
    if node.op_type == "ConvTranspose":
        return int(weight.shape[1]) * int(attribute(node, "group", 1))
    return int(weight.shape[0 if attribute(node, "transB", 0) else 1])


def _along(node: Any, weight: Array, a: Array) -> Array:
    """One factor an output channel, so that it multiplies the weight."""
    if node.op_type == "Conv":
        return a.reshape(-1, *[1] * (weight.ndim - 1))
    if node.op_type == "Gemm":
        return a.reshape(-1, 1) if attribute(node, "transB", 0) else a.reshape(1, -1)
    group = int(attribute(node, "group", 1))  # the weight is (in, out / group, ...); its rows lie group by group
    rows = np.repeat(a.reshape(group, -1), weight.shape[0] // group, axis=0)
    return rows.reshape(*rows.shape, *[1] * (weight.ndim - 2))


def _scaling(graph: Graph, node: Any, follower: Any, channels: int) -> tuple[Array, Array] | None:
    """a and c, float64 of shape (channels,), of a node that computes a y + c; None for any other."""
    if follower.op_type == "BatchNormalization":
        return _batch_norm(graph, follower, channels)
    if follower.op_type not in ("Mul", "Add", "Sub", "Div"):
        return None
    position = 1 if follower.input[0] == node.output[0] else 0
    if position == 0 and follower.op_type in ("Sub", "Div"):
        return None
    factor = graph.constant(follower.input[position])
    value = None if factor is None else _per_channel(node, graph, factor, channels)
    if value is None:
        return None
    ones, zero = np.ones(channels), np.zeros(channels)
    if follower.op_type == "Div":
        return None if (value == 0).any() else (1 / value, zero)
    return {"Mul": (value, zero), "Add": (ones, value), "Sub": (ones, -value)}[follower.op_type]


def _batch_norm(graph: Graph, node: Any, channels: int) -> tuple[Array, Array] | None:
    """y = scale (x - mean) / sqrt(var + epsilon) + shift, in inference; None where it has other channels."""
    if attribute(node, "training_mode", 0) or len([name for name in node.output if name]) > 1:
        return None
    arrays = [graph.constant(name) for name in node.input[1:5]]
    if any(value is None or value.shape != (channels,) for value in arrays):
        return None
    scale, shift, mean, variance = (np.asarray(value, np.float64) for value in arrays)
    with np.errstate(all="ignore"):
        a = scale / np.sqrt(variance + attribute(node, "epsilon", 1e-5))
        c = shift - mean * a
    return (a, c) if np.isfinite(a).all() and np.isfinite(c).all() else None


def _per_channel(node: Any, graph: Graph, value: Array, channels: int) -> Array | None:
    """A constant that broadcasts to one value a channel of the layer's output, float64; None for any other."""
    weight = graph.constant(node.input[1])
    assert weight is not None
    rank = weight.ndim
    if value.dtype != np.float32 or value.ndim > rank:
        return None
    full = value.reshape([1] * (rank - value.ndim) + list(value.shape))
    expected = [channels if axis == 1 else 1 for axis in range(rank)]
    if any(size not in (1, most) for size, most in zip(full.shape, expected, strict=True)):
        return None
    return np.broadcast_to(full, expected).reshape(channels).astype(np.float64)


def _equal(graph: Graph, node: Any, follower: Any, weight: Array, bias: Array) -> bool:
    """Whether the fused layer gives what the two nodes give, on a small random input."""
    shape = _input_shape(node, weight)
    if math.prod(shape) > LARGEST:
        return False
    inputs = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    names = {name for part in (node, follower) for name in part.input if name} - {node.input[0], node.output[0]}
    constants = {name: graph.constant(name) for name in sorted(names)}
    apart = _piece(graph, [node, follower], constants, inputs)
    fused = type(node)()
    fused.CopyFrom(node)
    del fused.input[:]
    fused.input.extend([node.input[0], "fused_weight", "fused_bias"])
    fused.output[0] = follower.output[0]
    together = _piece(graph, [fused], {"fused_weight": weight, "fused_bias": bias}, inputs)
    expected = equivalence.reference(apart, [inputs])
    return expected is not None and expected.difference(together) is None


def _input_shape(node: Any, weight: Array) -> tuple[int, ...]:
    """Of the smallest input that gives an output: one position of the kernel, more where pads are cut off."""
    if node.op_type == "Gemm":
        inputs = weight.shape[1 if attribute(node, "transB", 0) else 0]
        return (inputs, 4) if attribute(node, "transA", 0) else (4, inputs)
    spatial = weight.shape[2:]
    dilations = attribute(node, "dilations", [1] * len(spatial))
    sizes = [(size - 1) * by + 2 for size, by in zip(spatial, dilations, strict=True)]
    group = attribute(node, "group", 1) if node.op_type == "Conv" else 1
    channels = weight.shape[1] * group if node.op_type == "Conv" else weight.shape[0]
    return (1, channels, *sizes)


def _piece(graph: Graph, nodes: list[Any], constants: dict[str, Array | None], inputs: Array) -> Graph:
    """A model of a few nodes."""
    import onnx
    from onnx import numpy_helper

    kind = onnx.TensorProto.FLOAT
    body = onnx.helper.make_graph(
        nodes,
        "piece",
        [onnx.helper.make_tensor_value_info(nodes[0].input[0], kind, inputs.shape)],
        [onnx.helper.make_tensor_value_info(nodes[-1].output[0], kind, None)],
        [numpy_helper.from_array(np.asarray(value, order="C"), name) for name, value in constants.items()],
    )
    version = graph.model.ir_version
    return Graph(onnx.helper.make_model(body, opset_imports=list(graph.model.opset_import), ir_version=version))
