"""Gemm as quantization wants it: y = x W + b with W (in, out), alpha = beta = 1 and a bias of one value an output."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import STANDARD

Array = NDArray[Any]


def normalise(graph: Graph) -> None:
    """Every Gemm with a constant float32 weight takes transB, alpha and beta into its constants, as far as it can."""
    for node in graph.nodes:
        if node.op_type == "Gemm" and node.domain in STANDARD:
            weight = graph.constant(node.input[1])
            if weight is not None and weight.dtype == np.float32 and weight.ndim == 2:
                _weight(graph, node, weight)
                _bias(graph, node)
    graph.reindex()


def _weight(graph: Graph, node: Any, weight: Array) -> None:
    alpha = attribute(node, "alpha", 1.0)
    if attribute(node, "transB", 0):
        weight = weight.T
    elif alpha == 1.0:
        return
    node.input[1] = graph.own_constant(node, 1, weight * np.float32(alpha))
    _drop(node, "transB", "alpha")


def _bias(graph: Graph, node: Any) -> None:
    """beta goes into the bias, which becomes (out,); an absent bias needs no beta. One that is computed, that has
    rows, or that fits no output stays."""
    if len(node.input) < 3 or not node.input[2]:
        _drop(node, "beta")
        return
    bias, weight = graph.constant(node.input[2]), graph.constant(node.input[1])
    assert weight is not None
    if bias is None or (bias.ndim == 2 and bias.shape[0] > 1) or bias.size not in (1, weight.shape[1]):
        return
    beta = attribute(node, "beta", 1.0)
    if beta != 1.0 or bias.shape != (weight.shape[1],):
        full = np.broadcast_to(bias.reshape(-1) * np.float32(beta), weight.shape[1:])
        node.input[2] = graph.own_constant(node, 2, full)
    _drop(node, "beta")


def _drop(node: Any, *names: str) -> None:
    attributes = [attr for attr in node.attribute if attr.name not in names]
    del node.attribute[:]
    node.attribute.extend(attributes)
