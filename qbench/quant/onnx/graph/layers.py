"""Which layers of a prepared graph can be quantized, and why the others stay float."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.tensor_sources import find_below_logarithms, find_varying, sources

# How many dimensions the input of a layer may have.
RANKS = {"Conv": (3, 4, 5), "ConvTranspose": (4,), "AveragePool": (4,), "MaxPool": (4,)}
LAYERS = ("Conv", "Gemm", "MatMul", "ConvTranspose", "AveragePool")
TENSORS = ("MaxPool", "Add")
MOVES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity")  # give the values that they read
STANDARD = ("", "ai.onnx")
OPEN_BRANCH = "which branch runs follows from"
CONSTANT_CONDITION = (
    "give it one value or size (in a suite: inputs: {NAME: {constant: VALUE}}), and the branch that runs is quantized"
)


@dataclass(frozen=True, kw_only=True)
class FoundLayer:
    """One node. ``kind``: "layer" (input and weight can be quantized), "tensor" (only its inputs, one by one), "other"
    for an operator that is never quantized; ``reason`` says why this one stays float, None: it can be quantized."""

    name: str
    operator: str
    kind: str
    reason: str | None = None


def layers(graph: Graph) -> tuple[FoundLayer, ...]:
    """All nodes in the order of the graph; those of a subgraph follow their node, as ``node/branch/inner``."""
    every: list[FoundLayer] = []
    varying, below = find_varying(graph), find_below_logarithms(graph)
    for node in graph.nodes:
        every.append(_classify_node(graph, node, varying, below))
        every += inner_layers(graph, node)
    return tuple(every)


def kind_of(node: Any) -> str:
    """ "layer", "tensor" or "other", by the operator alone."""
    if node.domain not in STANDARD:
        return "other"
    return "layer" if node.op_type in LAYERS else "tensor" if node.op_type in TENSORS else "other"


def is_if(node: Any) -> bool:
    """Whether a node is an If."""
    return bool(node.op_type == "If" and node.domain in STANDARD)


def subgraphs(node: Any) -> Iterator[tuple[str, Any]]:
    """The graphs that a node holds (the branches of an If, the body of a Loop), each with its attribute's name."""
    for attr in node.attribute:
        if attr.HasField("g"):
            yield attr.name, attr.g
        for i, graph in enumerate(attr.graphs):
            yield f"{attr.name}_{i}", graph


def _classify_node(graph: Graph, node: Any, varying: Collection[str], below: Collection[str]) -> FoundLayer:
    kind = kind_of(node)
    if kind == "other":
        domain = f"{node.domain}." if node.domain not in STANDARD else ""
        reason: str | None = f"{domain}{node.op_type} stays float"
    else:
        # OpenVINO 2026.4, which computes it once where the batch size is known, has no end for its dequantization then.
        varies = any(name in varying for name in node.input)
        reason = _reason(graph, node) or (None if varies else "what it reads is the same for every example")
        if reason is None and node.output[0] in below:
            reason = "a logarithm of its output follows, which makes much of the small values that int8 rounds"
    return FoundLayer(name=node.name, operator=node.op_type, kind=kind, reason=reason)


def inner_nodes(node: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """The nodes of a node's subgraphs, those within them too: how they are listed, the node, and which one holds it."""
    for name, graph in subgraphs(node):
        for i, inner in enumerate(graph.node):
            place = f"{path}/{name}/{inner.name or f'{inner.op_type}_{i}'}"
            yield place, inner, node
            yield from inner_nodes(inner, place)


def inner_layers(graph: Graph, node: Any) -> Iterator[FoundLayer]:
    """The nodes of a node's subgraphs; all of them stay float."""
    for place, inner, holder in inner_nodes(node, node.name):
        reason = f"inside a subgraph of {holder.name or holder.op_type} ({holder.op_type}), which stays float"
        if holder is node and is_if(node):
            reason += f": {_condition(graph, node)}"
        yield FoundLayer(name=place, operator=inner.op_type, kind=kind_of(inner), reason=reason)


def _condition(graph: Graph, node: Any) -> str:
    """Why it is not known which branch of an If runs."""
    inputs = " and ".join(sources(graph, node.input[0]))
    return f"{OPEN_BRANCH} {inputs}" if inputs else "which branch runs is not known beforehand"


def _reason(graph: Graph, node: Any) -> str | None:
    kind = node.op_type
    if kind in ("AveragePool", "MaxPool"):
        return _rank(len(attribute(node, "kernel_shape", ())) + 2, kind) or _not_float(graph, node.input[0])
    if kind == "Add":
        constants = [name for name in node.input if graph.constant(name) is not None]
        if constants:
            return f"adds a constant ({constants[0]})"
        return _not_float(graph, node.input[0])
    return _weight(graph, node) or _bias(graph, node)


def _weight(graph: Graph, node: Any) -> str | None:
    """Why the weight of a layer cannot be quantized."""
    kind = node.op_type
    weight = graph.constant(node.input[1])
    if weight is None:
        first = kind == "MatMul" and graph.constant(node.input[0]) is not None
        return "its constant is the first input, not the second" if first else "its weight is not constant"
    if weight.dtype != np.float32:
        return f"its weight is {weight.dtype}, only float32 is quantized"
    if kind in ("MatMul", "Gemm") and weight.ndim != 2:
        return f"its weight has {weight.ndim} dimensions, only 2 are quantized"
    wrong = _rank(weight.ndim, kind) if kind in RANKS else None
    if wrong or not weight.size:
        return wrong or "its weight is empty"
    if not np.isfinite(weight).all():
        return "its weight holds NaN or inf"
    if graph.constant(node.input[0]) is not None:
        return "its input is constant"
    if kind == "Gemm":
        return _gemm(node)
    return None


def _gemm(node: Any) -> str | None:
    defaults = {"transA": 0, "alpha": 1.0, "beta": 1.0}
    has = {name: attribute(node, name, default) for name, default in defaults.items()}
    wrong = [f"{name} = {value:g}" for name, value in has.items() if value != defaults[name]]
    rule = "only transA = 0 is quantized, and alpha or beta beside 1 where they can be taken into constants"
    return f"{', '.join(wrong)}: {rule}" if wrong else None


def _bias(graph: Graph, node: Any) -> str | None:
    if node.op_type == "MatMul" or len(node.input) < 3 or not node.input[2]:
        return None
    bias = graph.constant(node.input[2])
    if bias is None:
        return "its bias is not constant"
    if bias.dtype.kind != "f":
        return f"its bias is {bias.dtype}"
    if bias.ndim != 1:
        return f"its bias has {bias.ndim} dimensions, only 1 is quantized"
    return None if np.isfinite(bias).all() else "its bias holds NaN or inf"


def _rank(rank: int, kind: str) -> str | None:
    allowed = RANKS[kind]
    if rank in allowed:
        return None
    return f"its input has {rank} dimensions, only {' or '.join(str(rank) for rank in allowed)} are quantized"


def _not_float(graph: Graph, tensor: str) -> str | None:
    kind = graph.element_type(tensor)
    if kind is None:
        return f"the type of its input {tensor} is not known: shape inference does not reach it"
    return None if kind == np.float32 else f"its input is {kind}, only float32 is quantized"
