"""Sums that ONNX Runtime would fuse into slower kernels, written so that it does not.

Of a transformer encoder (4 layers of 384, 64 tokens, int8, one thread, ONNX Runtime 1.31) a SkipLayerNormalization
takes 135 us where the sum takes 11 and the LayerNormalization 19, a BiasGelu 115 us where the sum takes 38 and the Gelu
62. The same sums as Sum of two and as Sub of the negated bias: 0.95 [0.93, 0.96] of the time of ONNX Runtime's own
quantization, 1.19 [1.16, 1.22] without (tests/benchmarks/by_hand.py).
"""

from __future__ import annotations

from typing import Any

from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import STANDARD


def keep_apart(graph: Graph) -> None:
    """Rewrites, in place and to the same values, each float Add that a LayerNormalization reads, and each Add of a
    constant that a Gelu alone reads."""
    adds = [node for node in graph.nodes if node.op_type == "Add" and node.domain in STANDARD]
    sums = {node.name for node in adds if _before_norm(graph, node)}
    biases = {node.name: _bias(graph, node) for node in adds if _before_gelu(graph, node)}
    less = {
        name: graph.add_constant(f"{tensor}_less", -value)
        for name, tensor in biases.items()
        if tensor is not None and (value := graph.constant(tensor)) is not None
    }
    if not sums and not less:
        return
    with graph.editing() as nodes:
        for node in nodes:
            if node.name in sums:
                node.op_type = "Sum"
            elif node.name in less:
                node.op_type = "Sub"
                node.input[:] = [*(name for name in node.input if name != biases[node.name]), less[node.name]]
    graph.drop_unused()


def _before_norm(graph: Graph, node: Any) -> bool:
    """Whether a node adds two activations for a LayerNormalization, and nobody needs the sum as bytes."""
    readers = graph.readers(node.output[0])
    kinds = {reader.op_type for reader, _ in readers}
    computed = all(graph.constant(name) is None for name in node.input)
    return computed and "LayerNormalization" in kinds and "QuantizeLinear" not in kinds


def _before_gelu(graph: Graph, node: Any) -> bool:
    """Whether a Gelu alone reads what a node adds."""
    return [reader.op_type for reader, _ in graph.readers(node.output[0])] == ["Gelu"]


def _bias(graph: Graph, node: Any) -> str | None:
    """The constant that a node adds; None where it adds none, or only constants."""
    constants = [name for name in node.input if graph.constant(name) is not None]
    return constants[0] if len(constants) == 1 else None
