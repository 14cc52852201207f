"""Graph outputs that come from a layer: the caller reads them through a node of its own, which can be quantized."""

from __future__ import annotations

import numpy as np

from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import STANDARD

# Whose kernels on bytes in ONNX Runtime give bytes only, and are faster for it: two convolutions of 32 channels and an
# Add on 128x128 take 0.77 [0.75, 0.80] of the time with the output quantized. An AveragePool is slower on bytes (1.34
# to 1.45 of the time with the convolution before it): at the end it stays float.
_SOURCES = ("Conv", "ConvTranspose", "MaxPool", "Add")
_FOLDED = ("Relu", "Clip")  # no places of their own behind one
CALLER = "graph_output_"  # how the names of such nodes begin


def give_readers(graph: Graph) -> None:
    """Puts an Identity in front of every output that a convolution, a MaxPool or an Add computes: by it a configuration
    names that output, as it names other readers of a tensor. Outputs keep their names and values."""
    import onnx

    names = [name for name in dict.fromkeys(graph.outputs) if from_layer(graph, name)]
    inner = {name: graph.fresh(f"{name}_inner") for name in names}
    if not inner:
        return
    with graph.editing() as nodes:
        for node in nodes:
            node.input[:] = [inner.get(name, name) for name in node.input]
            node.output[:] = [inner.get(name, name) for name in node.output]
        nodes += [
            onnx.helper.make_node("Identity", [new], [old], name=graph.fresh(f"{CALLER}{old}"))
            for old, new in inner.items()
        ]


def is_caller(node: object) -> bool:
    """Whether a node is one that ``give_readers`` made."""
    return getattr(node, "op_type", None) == "Identity" and str(getattr(node, "name", "")).startswith(CALLER)


def from_layer(graph: Graph, name: str) -> bool:
    """Whether a convolution, a MaxPool or an Add computes a float tensor that no subgraph reads."""
    kind = graph.element_type(name)
    if kind is not None and kind != np.float32:  # numpy's float64 equals None
        return False
    if any(position < 0 for _, position in graph.readers(name)):
        return False
    maker = graph.maker(name)
    while maker is not None and maker.op_type in _FOLDED and maker.domain in STANDARD:
        maker = graph.maker(maker.input[0])
    return maker is not None and maker.op_type in _SOURCES and maker.domain in STANDARD
