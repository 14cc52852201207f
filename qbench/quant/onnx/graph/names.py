"""Every node of a graph gets a name of its own: configuration, record and ONNX Runtime know nodes by their names."""

from __future__ import annotations

from qbench.quant.onnx.graph.graph import Graph


def give(graph: Graph) -> dict[str, str]:
    """Names nodes without a name ``<operator>_<number>`` and makes names that several nodes have different; what was
    given, new name -> old name. The first node with a name keeps it."""
    new: dict[str, str] = {}
    in_use: set[str] = {node.name for node in graph.nodes if node.name}
    used: set[str] = set()
    for number, node in enumerate(graph.nodes):
        if node.name and node.name not in used:
            used.add(node.name)
            continue
        old = node.name
        node.name = _free(old or f"{node.op_type}_{number}", in_use)
        in_use.add(node.name)
        new[node.name] = old
    graph.reindex()
    return new


def _free(base: str, used: set[str]) -> str:
    name, number = base, 1
    while name in used:
        name, number = f"{base}_{number}", number + 1
    return name
