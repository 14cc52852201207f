"""Graph + record -> a float simulation of the int8 model in standard operators, which any runtime computes alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from qbench.quant.affine import HIGH, LOW, dequantize_linear
from qbench.quant.onnx.export import integer_weights
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Record, Sites
from qbench.quant.onnx.weights.weight_scales import spread
from qbench.quant.scale_rules import QParams


def fake_quant(graph: Graph, sites: Sites, record: Record) -> Graph:
    """A copy of a prepared graph whose quantized activations pass Div, Round, Add, Clip, Sub and Mul, and whose weights
    and biases have the values that their integers stand for (weights int8, biases int32 in steps of s_d s_w).

    x' = (clip(round(x / s) + offset, -128, 127) - offset) s. What is not quantized keeps its values, and outputs
    their names. Raises ``BuildError`` for a bias out of int32, ``UsageError`` for an incomplete record.
    """
    model = graph.copy(without={site.tensor for site in sites.weights})
    without_notes(model)
    nodes: list[Any] = []
    instead: dict[tuple[str, int], str] = {}
    for activation in integer_weights.activations(sites, record):
        steps = _steps(model, activation.tensor, activation.params)
        nodes += steps
        instead |= dict.fromkeys(activation.readers, steps[-1].output[0])
    for layer in integer_weights.layers(graph, sites, record):
        shaped = spread(tuple(np.atleast_1d(layer.scale)), layer.axis, layer.weight.ndim)
        instead[layer.name, 1] = model.add_constant(layer.tensor, dequantize_linear(layer.weight, shaped))
        if layer.bias is not None and layer.step is not None:
            values = layer.bias.astype(np.float32) * layer.step
            instead[layer.name, 2] = model.add_constant(f"{layer.bias_tensor}_fake", values)
    integer_weights.replaced(model, iter(instead.items()), nodes)
    model.drop_unused()
    return model


def without_notes(graph: Graph) -> None:
    """Takes qbench's own entries out of the metadata: what is written is no calibration model."""
    properties = [(prop.key, prop.value) for prop in graph.model.metadata_props if not prop.key.startswith("qbench.")]
    del graph.model.metadata_props[:]
    for key, value in properties:
        graph.model.metadata_props.add(key=key, value=value)


def _steps(graph: Graph, tensor: str, params: QParams) -> list[Any]:
    """The nodes that quantize a tensor and give it back."""
    import onnx

    scale, offset, low, high = (
        graph.add_constant(f"{tensor}_{name}", np.array(value, np.float32))
        for name, value in (("scale", params.scale), ("offset", params.zero_point), ("low", LOW), ("high", HIGH))
    )
    nodes, source = [], tensor
    for kind, *others in (
        ("Div", scale),
        ("Round",),
        ("Add", offset),
        ("Clip", low, high),
        ("Sub", offset),
        ("Mul", scale),
    ):
        output = graph.fresh(f"{tensor}_{kind.lower()}")
        nodes.append(onnx.helper.make_node(kind, [source, *others], [output], name=graph.fresh(f"{output}_node")))
        source = output
    return nodes
