"""LayerNorm over channels that lie last, written so that OpenVINO has a kernel for it.

OpenVINO 2026.4 normalizes over the last dimension of tensors of two or three; of more (the [n, height, width, channels]
of ConvNeXt and Swin) it makes a mean, a difference, and a norm of them. Where any batch size is allowed, it also moves
channels last that lie so in memory already, and back by a slow kernel. ConvNeXt-tiny, one thread, with AMX,
by NNCF's own quantization = 1: 1.15 before qbench wrote it so, 0.99 since
(``tests/ecosystem/run.py FOLDER --times convnext_tiny``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import STANDARD

KINDS = ("LayerNormalization",)
_MOST = 3  # dimensions of a tensor whose last one OpenVINO has a kernel for


def flatten(graph: Graph) -> bool:
    """Writes each LayerNormalization over the last of more than three dimensions as one of [n, places, channels],
    between two Reshapes; no value changes by it. Whether there was any.

    Where the batch size is open, a Transpose before it that moves channels last becomes one of [n, channels, places].
    """
    import onnx

    names = {node.name for node in graph.nodes if _is_over_last_of_many(graph, node)}
    if not names:
        return False
    with graph.editing() as nodes:
        for node in [node for node in nodes if node.name in names]:
            sizes = [0, *(graph.shape(node.output[0]) or ())[1:]]
            flat, source = _flat_source(graph, node.input[0], sizes)
            reshaped = add_reshape(graph, nodes, source, flat, f"{node.name}.flat")
            if source != node.input[0]:
                moved = graph.fresh(f"{node.name}.moved")
                nodes.append(onnx.helper.make_node("Transpose", [reshaped], [moved], name=moved, perm=[0, 2, 1]))
                reshaped = moved
            for axis in [attr for attr in node.attribute if attr.name == "axis"]:
                axis.i = -1
            output, node.input[0] = node.output[0], reshaped
            node.output[0] = graph.fresh(f"{node.name}.normalized")
            add_reshape(graph, nodes, node.output[0], sizes, f"{node.name}.back", output)
    graph.drop_unused()
    return True


def _is_over_last_of_many(graph: Graph, node: Any) -> bool:
    """Whether a node is a norm over the last dimension alone, of more than ``_MOST``, all of known sizes but for the
    first; it gives the normalized values and nothing beside."""
    shape = graph.shape(node.output[0]) if node.op_type in KINDS and node.domain in STANDARD else None
    if shape is None:
        return False
    over_last = attribute(node, "axis", -1) in (-1, len(shape) - 1)
    known = all(isinstance(size, int) for size in shape[1:])
    return over_last and known and len(shape) > _MOST and not any(node.output[1:])


def _flat_source(graph: Graph, tensor: str, sizes: list[Any]) -> tuple[list[int], str]:
    """What a Reshape is to give, and of which tensor: [n, places, channels] of the tensor itself, or [n, channels,
    places] of that whose channels a Transpose has moved last for this one reader."""
    maker = graph.maker(tensor)
    moves = maker is not None and maker.op_type == "Transpose" and maker.domain in STANDARD
    last = [0, *range(2, len(sizes)), 1]
    alone = len(graph.readers(tensor)) == 1 and not graph.is_output(tensor)
    if maker is not None and moves and alone and graph.batch is None and attribute(maker, "perm") == last:
        return [0, sizes[-1], -1], maker.input[0]
    return [0, -1, sizes[-1]], tensor


def add_reshape(graph: Graph, nodes: list[Any], tensor: str, sizes: list[Any], name: str, output: str = "") -> str:
    """Adds a Reshape of a tensor to the nodes of a graph that is edited; the name of what it gives, ``output`` where
    it is to have that one."""
    import onnx

    output = output or graph.fresh(name)
    dimensions = graph.add_constant(f"{name}.sizes", np.array(sizes, np.int64))
    nodes.append(onnx.helper.make_node("Reshape", [tensor, dimensions], [output], name=graph.fresh(f"{name}.node")))
    return output
