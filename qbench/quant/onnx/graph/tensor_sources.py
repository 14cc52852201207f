"""What the value of a tensor follows from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from qbench.quant.onnx.graph.graph import Graph, captured

# What gives powers, sums or single ones of the values that it reads.
_KEEP_RATIOS = (
    *("Conv", "ConvTranspose", "Gemm", "AveragePool", "ReduceSum", "ReduceMean", "ReduceL2", "ReduceSumSquare"),
    *("Pow", "Sqrt", "Abs", "Neg", "Clip", "Max", "Identity", "Concat", "Split", "Slice", "Gather", "Pad", "Transpose"),
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand"),
)
_FLOOR = 0.1  # below it a constant keeps a logarithm finite; from it on it is more than the small values are
SIZES = ("Shape", "Size")  # operators to which the values that they read are all the same


def ancestors(graph: Graph, tensors: Iterable[str], *, behind_sizes: bool = False) -> set[str]:
    """The tensors ``tensors`` and all that their values are computed from; what only its sizes matter of, and what that
    is computed from, where asked for."""
    pending, names = list(tensors), set[str]()
    while pending:
        name = pending.pop()
        maker = None if name in names else graph.maker(name)
        names.add(name)
        if maker is not None and (behind_sizes or maker.op_type not in SIZES):
            pending += [name for name in (*maker.input, *captured(maker)) if name]
    return names


def find_varying(graph: Graph) -> set[str]:
    """The tensors whose values follow from those of an input, or from chance; those of the others follow from constants
    and sizes."""
    varying = set(graph.inputs)
    for node in graph.nodes:
        if node.op_type in SIZES:
            continue
        if node.op_type.startswith("Random") or not varying.isdisjoint((*node.input, *captured(node))):
            varying.update(node.output)
    return varying


def find_below_logarithms(graph: Graph) -> set[str]:
    """The tensors of which a logarithm is taken, and those that they are powers, sums or linear functions of: the
    filters of a spectrogram. An activation function, a normalization and a product of two tensors end it."""
    pending = [node.input[0] for node in graph.nodes if node.op_type == "Log"]
    below = set[str]()
    while pending:
        name = pending.pop()
        maker = None if name in below else graph.maker(name)
        below.add(name)
        if maker is not None and _keeps_ratios(graph, maker):
            pending += [each for each in maker.input if each and graph.constant(each) is None]
    return below


def _keeps_ratios(graph: Graph, node: Any) -> bool:
    """Whether small values that a node reads are small values of what it gives."""
    kind = node.op_type
    if kind in ("Mul", "Div", "MatMul"):
        varying = {name for name in node.input if graph.constant(name) is None}
        return len(varying) == 1
    if kind in ("Add", "Sub"):  # behind log(1 + x) a small x is none
        constants = [graph.constant(name) for name in node.input]
        return all(value is None or float(np.abs(value).max(initial=0.0)) < _FLOOR for value in constants)
    return kind in _KEEP_RATIOS


def sources(graph: Graph, tensor: str) -> tuple[str, ...]:
    """The inputs of the graph that a tensor follows from, in words: ``input x``, or ``the sizes of input x``."""
    by_value = ancestors(graph, [tensor])
    by_size = ancestors(graph, by_value, behind_sizes=True) - by_value
    measured = [name for name in graph.inputs if name in by_size and not _fixed(graph, name)]
    return (
        *(f"input {name}" for name in graph.inputs if name in by_value),
        *(f"the sizes of input {name}" for name in measured),
    )


def _fixed(graph: Graph, name: str) -> bool:
    return all(isinstance(size, int) for size in graph.shape(name) or [None])
