"""Which nodes of a graph run in int8, and which layers are fused: decided by kind of layer, proven by a trial run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qbench.quant.pytorch.eager import fusion_patterns as chains
from qbench.quant.pytorch.eager import operator_support
from qbench.quant.pytorch.eager.graph import Value


@dataclass(frozen=True, kw_only=True)
class Int8Plan:
    """Positions of nodes in the graph's order: those whose result is int8, and the chains that are fused."""

    int8: frozenset[int]
    chains: tuple[chains.Chain, ...]


def make(
    traced: Any,
    values: Sequence[Value],
    refused: Mapping[int, str],
    skipped: Callable[[Any], bool],
    *,
    training: bool,
    clip: chains.Clip | None,
) -> Int8Plan:
    """The plan that quantizes every layer with an int8 class that is neither skipped nor refused (by position), and
    keeps in int8 what lies between them."""
    nodes = list(traced.graph.nodes)
    positions = {node: i for i, node in enumerate(nodes)}

    modules = {i: traced.get_submodule(node.target) for i, node in enumerate(nodes) if node.op == "call_module"}
    out = {id(modules[i]) for i in refused if i in modules} | {id(part) for part in modules.values() if skipped(part)}

    def free(node: Any) -> bool:
        return positions[node] not in refused and id(modules.get(positions[node])) not in out

    fused = chains.find(traced, values, training=training, clip=clip, free=free)
    heads = {member: chain.nodes[0] for chain in fused for member in chain.nodes[1:]}
    layers = {positions[node] for node in nodes if _is_layer(traced, node, values[positions[node]]) and free(node)}
    sources = {source for i in layers for source in nodes[i].all_input_nodes if values[positions[source]].floats}
    int8: set[int] = set()
    for i, node in enumerate(nodes):
        inputs = [
            source
            for source in node.all_input_nodes
            if values[positions[source]].floats or values[positions[source]].several
        ]
        states = [positions[source] in int8 for source in inputs]
        if i in heads:
            inside = heads[i] in int8
        elif i in layers:
            inside = all(positions[source] in int8 or values[positions[source]].floats for source in inputs)
        elif node.target in operator_support.arithmetic():
            shapes = [values[positions[source]].shape for source in inputs]
            inside = any(states) and all(
                inside or source in sources for inside, source in zip(states, inputs, strict=True)
            )
            inside = inside and _observable(node, shapes) and values[i].floats
        else:
            inside = bool(states) and all(states) and _follows(traced, node, values[i])
        if inside and free(node):
            int8.add(i)
    mixed = _mixed(modules, int8)
    if mixed is not None:
        reason = "the same layer is called with float values elsewhere"
        return make(traced, values, {**refused, mixed: reason}, skipped, training=training, clip=clip)
    return Int8Plan(int8=frozenset(int8), chains=tuple(chain for chain in fused if chain.nodes[0] in int8))


def _mixed(modules: Mapping[int, Any], int8: set[int]) -> int | None:
    """The position of an int8 call of a layer that is called in float too: it can be swapped for all calls or none."""
    floats = {
        id(part) for i, part in modules.items() if i not in int8 and type(part) not in operator_support.transparent()
    }
    return next((i for i in sorted(int8) if i in modules and id(modules[i]) in floats), None)


def _is_layer(traced: Any, node: Any, value: Value) -> bool:
    return (
        node.op == "call_module"
        and type(traced.get_submodule(node.target)) in operator_support.heavy()
        and value.floats
    )


def _observable(node: Any, shapes: list[tuple[int, ...]]) -> bool:
    """Whether ``FloatFunctional`` says the same as this addition, product or concatenation."""
    if operator_support.arithmetic()[node.target] == "cat":
        return set(node.kwargs) <= {"dim", "axis", "tensors"}
    constants = [argument for argument in node.args if not hasattr(argument, "op")]
    if node.kwargs or len(node.args) != 2 or any(not isinstance(constant, int | float) for constant in constants):
        return False
    if len(shapes) == 1 and not constants:  # x + x, or a tensor and something that is none
        return node.args[0] is node.args[1]
    return len(set(shapes)) == 1


def _follows(traced: Any, node: Any, value: Value) -> bool:
    """Whether a node with int8 inputs gives an int8 result."""
    if node.op == "call_module":
        return (
            value.floats
            and type(traced.get_submodule(node.target)) in operator_support.observed() | operator_support.transparent()
        )
    if not (value.floats or (value.several and all(_is_item(user) for user in node.users))):
        return False
    if node.op == "call_function":
        return node.target in operator_support.functions() or _is_item(node)
    return node.op == "call_method" and node.target in operator_support.METHODS


def _is_item(node: Any) -> bool:
    import operator

    return node.op == "call_function" and node.target is operator.getitem
