"""A plan carried out on a graph: layers fused, arithmetic made observable, stubs where int8 begins and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qbench.quant.canonical.graph import free_name
from qbench.quant.pytorch.eager import operator_support
from qbench.quant.pytorch.eager.graph import Value
from qbench.quant.pytorch.eager.plan import Int8Plan

Qconfig = Callable[[Any, tuple[float, float] | None], Any]


def carry_out(
    traced: Any, plan: Int8Plan, values: tuple[Value, ...], qconfig: Qconfig, *, training: bool
) -> dict[Any, int]:
    """Rewrites a GraphModule in place, ready for torch's prepare; the node -> the position in the plan that it serves,
    for those that stayed and those that are new. ``qconfig(layer, ends)`` is the quantization of one
    layer or operation, its range cut to ``ends`` where there are some."""
    nodes = list(traced.graph.nodes)
    serves = {node: i for i, node in enumerate(nodes)}
    inside = {nodes[i] for i in plan.int8}
    ends = {nodes[chain.nodes[0]]: chain.ends for chain in plan.chains}
    _fuse(traced, nodes, plan, training=training)
    for chain in plan.chains:
        for i in chain.nodes[1:]:
            nodes[i].replace_all_uses_with(nodes[chain.nodes[0]])
            traced.graph.erase_node(nodes[i])
            inside.discard(nodes[i])
            del serves[nodes[i]]
    for part in traced.modules():
        part.qconfig = None
    for node in [candidate for candidate in traced.graph.nodes if candidate in inside]:
        if node.op == "call_module":
            _configure(traced.get_submodule(node.target), qconfig, ends.get(node))
        elif node.target in operator_support.arithmetic():
            new = _observable(traced, node, qconfig, with_relu=node in ends)
            inside.add(new)
            inside.discard(node)
            serves[new] = serves.pop(node)
    _stubs(traced, inside, serves, values, qconfig)
    traced.graph.lint()
    traced.recompile()
    return serves


def _fuse(traced: Any, nodes: list[Any], plan: Int8Plan, *, training: bool) -> None:
    """Fuses the layers of each chain. An activation that goes is a ReLU on a clipped range where that fuses, and
    the clipped range alone elsewhere."""
    from torch import nn

    from qbench.quant.pytorch import torch_ao

    fuse = torch_ao.fuse_modules_qat if training else torch_ao.fuse_modules
    for chain in plan.chains:
        targets = [nodes[i].target for i in chain.nodes]
        if nodes[chain.nodes[0]].op != "call_module":  # an addition takes its ReLU along
            continue
        if chain.cut and operator_support.fuses_with_relu(traced, targets):
            targets[-1] = free_name(traced, f"{nodes[chain.nodes[0]].name}_relu")
            traced.add_submodule(targets[-1], nn.ReLU().train(training))
        elif chain.cut:
            targets.pop()
        if len(targets) > 1:
            fuse(traced, targets, inplace=True)


def _configure(part: Any, qconfig: Qconfig, ends: tuple[float, float] | None) -> None:
    """A fused layer's parts carry its quantization too: torch reads it there."""
    if type(part) in operator_support.transparent() - operator_support.fixed():
        return
    configuration = qconfig(next(part.children(), part), ends)
    for inner in part.modules():
        inner.qconfig = configuration


def _observable(traced: Any, node: Any, qconfig: Qconfig, *, with_relu: bool) -> Any:
    """The call of a ``FloatFunctional`` in the place of an addition, product or concatenation."""
    from qbench.quant.pytorch import torch_ao

    part = torch_ao.FloatFunctional().train(traced.training)
    part.qconfig = qconfig(part, None)
    name = free_name(traced, f"{node.name}_functional")
    traced.add_submodule(name, part)
    method = operator_support.arithmetic()[node.target]
    args, kwargs = node.args, dict(node.kwargs)
    if method == "cat":
        tensors = kwargs.pop("tensors", args[0] if args else None)
        dim = kwargs.pop("dim", kwargs.pop("axis", args[1] if len(args) > 1 else 0))
        args = (list(tensors), dim)
    elif not all(hasattr(argument, "op") for argument in args):
        method += "_scalar"
        # The result's scale follows from the input's: torch observes nothing here, and asks for a scale all the same.
        unused_scale = torch_ao.FixedQParamsObserver.with_args(scale=1.0, zero_point=0)
        part.qconfig = torch_ao.QConfig(activation=unused_scale, weight=part.qconfig.weight)
        args = args if hasattr(args[0], "op") else args[::-1]
    elif with_relu:
        method += "_relu"
    with traced.graph.inserting_before(node):
        new = traced.graph.call_method(method, (traced.graph.get_attr(name), *args))
    node.replace_all_uses_with(new)
    traced.graph.erase_node(node)
    return new


def _stubs(traced: Any, inside: set[Any], serves: dict[Any, int], values: tuple[Value, ...], qconfig: Qconfig) -> None:
    """A QuantStub on each float32 value that int8 nodes read, a DeQuantStub on each int8 one that float nodes read."""
    from qbench.quant.pytorch import torch_ao

    for node in [candidate for candidate in traced.graph.nodes if candidate in serves]:
        value = values[serves[node]]
        if node in inside:
            crossing = [user for user in node.users if user not in inside and not _asks_for_shape(user)]
            make, word = torch_ao.DeQuantStub, "dequant"
        else:
            crossing = [user for user in node.users if user in inside and value.floats]
            make, word = torch_ao.QuantStub, "quant"
        if not crossing:
            continue
        stub = make()
        stub.qconfig = qconfig(stub, None)
        stub.train(traced.training)
        name = free_name(traced, f"{node.name}_{word}")
        traced.add_submodule(name, stub)
        with traced.graph.inserting_after(node):
            new = traced.graph.call_module(name, (node,))
        for user in crossing:
            user.replace_input_with(node, new)
        serves[new] = serves[node] if node in inside else serves[crossing[0]]


def _asks_for_shape(node: Any) -> bool:
    name = node.args[1] if node.target is getattr and len(node.args) > 1 else node.target
    return node.op in ("call_method", "call_function") and name in operator_support.SHAPES
