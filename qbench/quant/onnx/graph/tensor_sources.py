"""What the value of a tensor follows from."""

from __future__ import annotations

from collections.abc import Iterable

from qbench.quant.onnx.graph.graph import Graph, captured

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
