"""Trained ranges that a file leaves out: they clip all the same."""

from __future__ import annotations

import numpy as np

from qbench.quant.affine import HIGH, LOW
from qbench.quant.onnx.export import integer_weights
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Record, Sites


def clip(graph: Graph, sites: Sites, quantized: Sites, record: Record) -> Graph:
    """A copy of a prepared graph with a Clip where ``quantized`` leaves out what was trained quantized.

    In training the end of a range may have done the work of a ReLU6, Hardtanh or clamp, which is then not in the graph
    (a ReLU6 before a mean on OpenVINO: 3.1 dB).
    """
    import onnx

    places = {place for site in quantized.activations for place in site.keys.values()}
    copy = graph.copy()
    with copy.editing() as nodes:
        by_name = {node.name: node for node in nodes}
        for activation in integer_weights.activations(sites, record):
            left_out = [place for place in activation.readers if place not in places]
            if not left_out:
                continue
            steps = np.array([LOW, HIGH]) - activation.params.zero_point
            low, high = (np.array(step * activation.params.scale, np.float32) for step in steps)
            names = [
                copy.add_constant(f"{activation.tensor}_{end}", value) for end, value in (("low", low), ("high", high))
            ]
            output = copy.fresh(f"{activation.tensor}_in_range")
            name = copy.fresh(f"{output}_node")
            nodes.append(onnx.helper.make_node("Clip", [activation.tensor, *names], [output], name=name))
            for reader, position in left_out:
                by_name[reader].input[position] = output
    return copy
