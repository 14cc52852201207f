"""Quantization that an ONNX model spells out in standard operators, so that no operator's name tells it.

The fake-quant form of AMCT's flow: x -> Div s -> Round -> Add -> Clip -> Sub -> Mul s. Weights alone, stored in bytes:
w int8 -> Cast to float -> Mul s. Both are computed in float, and are no float network.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from qbench.quant.onnx.graph.layers import subgraphs

_SHIFTS = ("Add", "Sub")  # the zero point
_LIMITS = ("Clip", "Min", "Max")
_SCALES = ("Mul", "Div")
_CLOSE = 1e-3


def all_nodes(model: Any) -> Iterator[Any]:
    """Every node of a model, also in subgraphs and in its functions."""
    for graph in (model.graph, *model.functions):
        for part in _graphs(graph):
            yield from part.node


def rounding_nodes(model: Any) -> Iterator[Any]:
    """The nodes that round to the steps of a scale between two uses of it, and those that turn stored int8 weights into
    float ones."""
    for outer in (model.graph, *model.functions):
        constants: dict[str, Any] = {}
        for graph in _graphs(outer):
            constants |= {tensor.name: tensor for tensor in getattr(graph, "initializer", ())}
            constants |= {node.output[0]: _value_of(node) for node in graph.node if node.op_type == "Constant"}
            makers = {output: node for node in graph.node for output in node.output}
            readers: dict[str, list[Any]] = {}
            for node in graph.node:
                for name in node.input:
                    readers.setdefault(name, []).append(node)
            for node in graph.node:
                if _is_simulation(node, makers, readers, constants) or _is_stored_weight(node, readers, constants):
                    yield node


def is_simulation_alone(nodes: Iterable[Any]) -> bool:
    """Whether all of some quantized nodes only round in float."""
    return all(node.op_type == "Round" for node in nodes)


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for _, inner in subgraphs(node):
            yield from _graphs(inner)


def _is_simulation(
    node: Any, makers: Mapping[str, Any], readers: Mapping[str, list[Any]], constants: Mapping[str, Any]
) -> bool:
    before = makers.get(node.input[0]) if node.op_type == "Round" else None
    if before is None or before.op_type not in _SCALES:
        return False
    step: Any = node
    is_limited = False
    while (step := _only_reader(step, readers)) is not None and step.op_type in (*_SHIFTS, *_LIMITS):
        is_limited = is_limited or step.op_type in _LIMITS
    return bool(is_limited and step is not None and step.op_type in _SCALES and _undoes(before, step, constants))


def _only_reader(node: Any, readers: Mapping[str, list[Any]]) -> Any:
    following = readers.get(node.output[0], [])
    return following[0] if len(following) == 1 else None


def _undoes(before: Any, after: Any, constants: Mapping[str, Any]) -> bool:
    """Whether the second of two products or quotients takes the first one back: by one constant, or its reciprocal."""
    first, second = (next((name for name in node.input if name in constants), None) for node in (before, after))
    if first is None or second is None:
        return False
    opposite = bool(before.op_type != after.op_type)
    if first == second:
        return bool(opposite)
    a, b = _array(constants[first]), _array(constants[second])
    if a is None or b is None or a.size != b.size:
        return False
    ratio = (a / b if opposite else a * b).reshape(-1) if a.size == 1 or a.shape == b.shape else np.zeros(1)
    return bool(np.allclose(ratio, 1, rtol=_CLOSE, atol=0))


def _is_stored_weight(node: Any, readers: Mapping[str, list[Any]], constants: Mapping[str, Any]) -> bool:
    """Whether a node casts a constant of signed bytes, or of half bytes, that is scaled afterwards."""
    import onnx

    tensor = constants.get(node.input[0]) if node.op_type == "Cast" and node.input else None
    kinds = [onnx.TensorProto.INT8, *(getattr(onnx.TensorProto, name, -1) for name in ("INT4", "UINT4"))]
    if tensor is None or tensor.data_type not in kinds or len(tensor.dims) < 2:
        return False
    return any(reader.op_type in (*_SHIFTS, *_SCALES) for reader in readers.get(node.output[0], []))


def _value_of(node: Any) -> Any:
    return next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)


def _array(tensor: Any) -> Any:
    """The values of a constant; None for one that lies in another file, which is not read here, or is none."""
    import onnx

    if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(onnx.numpy_helper.to_array(tensor), np.float64)
