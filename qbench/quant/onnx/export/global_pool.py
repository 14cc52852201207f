"""Means over whole images as GlobalAveragePool, for which ONNX Runtime has a kernel on bytes.

It runs a ReduceMean on floats, which it dequantizes for that, and slowly where channels lie last. Networks with
squeeze-and-excitation have many (``tests/benchmarks/by_hand.py mobilenet``).
"""

from __future__ import annotations

from typing import Any

from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import STANDARD

_PLACES = ([2, 3], [-2, -1], [-1, 2], [-2, 3])  # height and width of an image, sorted


def as_pools(graph: Graph) -> None:
    """Rewrites, in place and equal up to rounding, each mean over height and width. The node keeps its name."""
    import numpy as np
    import onnx

    means = [node.name for node in graph.nodes if _is_mean_of_image(graph, node)]
    if not means:
        return
    with graph.editing() as nodes:
        for node in [node for node in nodes if node.name in means]:
            flat = not attribute(node, "keepdims", 1)
            node.op_type = "GlobalAveragePool"
            del node.input[1:], node.attribute[:]
            if flat:
                output, node.output[0] = node.output[0], graph.fresh(f"{node.output[0]}_pooled")
                shape = graph.add_constant(f"{output}_shape", np.array([0, -1], np.int64))
                name = graph.fresh(f"{output}_flat")
                nodes.append(onnx.helper.make_node("Reshape", [node.output[0], shape], [output], name=name))
    graph.drop_unused()


def _is_mean_of_image(graph: Graph, node: Any) -> bool:
    if node.op_type != "ReduceMean" or node.domain not in STANDARD or len(graph.shape(node.input[0]) or ()) != 4:
        return False
    named = attribute(node, "axes", None)
    if named is None and len(node.input) > 1 and node.input[1]:
        array = graph.constant(node.input[1])
        named = None if array is None else array.ravel().tolist()
    return named is not None and sorted(int(axis) for axis in named) in _PLACES
