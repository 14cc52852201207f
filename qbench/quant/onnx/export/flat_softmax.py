"""Softmax over channels that lie before several dimensions, written so that ONNX Runtime moves them fast.

ONNX Runtime 1.32 moves the dimension that it normalizes to the end and back, fast where one dimension is behind it and
slowly where several are: [1, 21, 128, 128] over 21 takes 2.7 ms, as [1, 21, 16384] 0.7, bit for bit the same
(``tests/benchmarks/flat_softmax.py``).
"""

from __future__ import annotations

from typing import Any

from qbench.quant.onnx.export.flat_norms import add_reshape
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import STANDARD

KINDS = ("Softmax", "LogSoftmax")
_OPSET = 13  # from which on they are over one dimension


def flatten(graph: Graph) -> bool:
    """Joins what lies behind the dimension of each Softmax, where that is more than one, between two Reshapes; no value
    changes by it. Whether there was any."""
    axes = {node.name: axis for node in graph.nodes if (axis := _axis_before_several(graph, node)) is not None}
    if not axes:
        return False
    with graph.editing() as nodes:
        for node in [node for node in nodes if node.name in axes]:
            axis, sizes = axes[node.name], graph.shape(node.output[0]) or ()
            as_they_are = [0] * (axis + 1)
            back = [*as_they_are, *(size if isinstance(size, int) else -1 for size in sizes[axis + 1 :])]
            output, node.output[0] = node.output[0], graph.fresh(f"{node.name}.normalized")
            node.input[0] = add_reshape(graph, nodes, node.input[0], [*as_they_are, -1], f"{node.name}.flat")
            add_reshape(graph, nodes, node.output[0], back, f"{node.name}.back", output)
            for place in [attr for attr in node.attribute if attr.name == "axis"]:
                place.i = axis
    return True


def _axis_before_several(graph: Graph, node: Any) -> int | None:
    """The dimension that a Softmax is over, where several lie behind it, at most one of an unknown size."""
    if node.op_type not in KINDS or node.domain not in STANDARD or graph.opset < _OPSET:
        return None
    sizes = graph.shape(node.output[0])  # that of what it reads, which is not known of what is quantized
    if sizes is None:
        return None
    axis = attribute(node, "axis", -1) % len(sizes)
    behind = sizes[axis + 1 :]
    unknown = sum(not isinstance(size, int) for size in behind)
    return axis if len(behind) > 1 and unknown <= 1 else None
