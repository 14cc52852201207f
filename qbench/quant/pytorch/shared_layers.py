"""Layers that a network calls several times, in a graph that FX prepared: one range for the outputs of all calls.

A converted layer has one output scale. FX watches each call apart and then takes the range of the last one for all: the
outputs of the others are clipped or coarse (torch 2.13).
"""

from __future__ import annotations

from typing import Any

from qbench.quant.pytorch.clamp_fusion import watching


def share(prepared: Any) -> frozenset[str]:
    """Gives the outputs of all calls of one layer one observer; the names of the observers' nodes that it concerns."""
    calls: dict[int, list[Any]] = {}
    for node in prepared.graph.nodes:
        if node.op == "call_module" and watching(node, prepared) is None:
            calls.setdefault(id(prepared.get_submodule(node.target)), []).append(node)
    names = []
    for nodes in (nodes for nodes in calls.values() if len(nodes) > 1):
        behind = [user for node in nodes for user in node.users if watching(user, prepared) is not None]
        for user in behind[1:]:
            user.target = behind[0].target
        names += [user.name for user in behind]
    prepared.recompile()
    return frozenset(names)
