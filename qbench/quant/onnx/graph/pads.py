"""Zero padding before a convolution becomes its own: a Pad between two layers is one more operator in float."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import STANDARD

LARGEST = 2**31  # zeros on one side of an axis


def take_in(graph: Graph, skip: Collection[str] = ()) -> tuple[tuple[str, str], ...]:
    """Gives every Conv that reads a Pad of zeros the pads of its own, in place; layer and Pad of each. What ``skip``
    names stays as it is."""
    folded = []
    for node in graph.nodes:
        pad = graph.maker(node.input[0]) if node.op_type == "Conv" and node.domain in STANDARD else None
        if pad is None or {node.name, pad.name} & set(skip) or attribute(node, "auto_pad", b"NOTSET") != b"NOTSET":
            continue
        weight = graph.constant(node.input[1])
        outer = None if weight is None else _zeros(graph, pad, weight.ndim)
        if outer:
            own = attribute(node, "pads", [0] * len(outer))
            if len(own) != len(outer) or max(own) > LARGEST:
                continue
            _set_pads(node, [our + other for our, other in zip(own, outer, strict=True)])
            node.input[0] = pad.input[0]
            folded.append((node.name, pad.name))
    graph.reindex()
    graph.drop_unused()
    return tuple(folded)


def _zeros(graph: Graph, pad: Any, rank: int) -> list[int] | None:
    """How many zeros a Pad puts before and behind each spatial axis, as Conv counts them; None where it does anything
    else."""
    if pad.op_type != "Pad" or pad.domain not in STANDARD or attribute(pad, "mode", b"constant") != b"constant":
        return None
    constants = [graph.constant(name) if name else None for name in pad.input]
    pads, value, axes = (constants[i] if i < len(constants) else None for i in (1, 2, 3))
    computed = any(name and constants[i] is None for i, name in enumerate(pad.input) if i)
    if computed or pads is None or (value is not None and value.size and np.any(value != 0)):
        return None
    length = 2 * (rank if axes is None else axes.size)
    if pads.size != length or (axes is not None and np.any((axes < -rank) | (axes >= rank))):
        return None
    if np.any(pads > LARGEST):  # more than a convolution can hold beside its own
        return None
    every = np.zeros((2, rank), np.int64)
    every[:, np.arange(rank) if axes is None else axes % rank] = pads.reshape(2, -1)
    if (every < 0).any() or every[:, :2].any():
        return None
    return [int(pad) for pad in every[:, 2:].reshape(-1)]


def _set_pads(node: Any, pads: list[int]) -> None:
    import onnx

    attributes = [attr for attr in node.attribute if attr.name != "pads"]
    del node.attribute[:]
    node.attribute.extend([*attributes, onnx.helper.make_attribute("pads", pads)])
