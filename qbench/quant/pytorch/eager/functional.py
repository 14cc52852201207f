"""Function calls in a traced network, written as the modules that eager mode can fuse, observe and swap."""

from __future__ import annotations

import inspect
from typing import Any

from qbench.quant.canonical import functional_layers, functional_ops
from qbench.quant.canonical.graph import free_name
from qbench.quant.pytorch.eager import operator_support


def to_modules(traced: Any) -> None:
    """Rewrites convolutions and linear functions with the network's own weights, activations and dropout of a
    GraphModule into modules called with their input by position, in place.

    A call whose arguments do not say the same as the module is left as it is.
    """
    functional_layers.replace_layers(traced)
    functional_ops.replace_activations(traced)
    for node in list(traced.graph.nodes):
        layer = _layer(node) if node.op in ("call_function", "call_method") else None
        if layer is None:
            continue
        name = free_name(traced, f"{node.name}_module")
        traced.add_submodule(name, layer.train(traced.training))
        node.op, node.target, node.args, node.kwargs = "call_module", name, node.args[:1], {}
    for node in traced.graph.nodes:
        if node.op == "call_module" and not node.args and list(node.kwargs) == ["input"]:
            node.args, node.kwargs = (node.kwargs["input"],), {}  # int8 layers do not know the keyword
    traced.delete_all_unused_submodules()
    traced.recompile()


def _layer(node: Any) -> Any | None:
    """The module that does what a call of an activation or of dropout does; None for any other."""
    from torch import nn
    from torch.nn import functional

    arguments = _arguments(node)
    if arguments is None:
        return None
    if node.target is functional.dropout:  # traced in eval mode; without ``training`` it is never turned off
        return nn.Dropout(arguments.get("p", 0.5)) if arguments.get("training", True) is False else None
    arguments.pop("inplace", None)
    kind, names = operator_support.activations().get(node.target, (None, ()))
    return kind(**arguments) if kind is not None and arguments.keys() <= set(names) else None


def _arguments(node: Any) -> dict[str, Any] | None:
    """The call's arguments by name, without the first (the input) and without those that say nothing; None where
    they cannot be told."""
    if len(node.args) == 1 and not node.kwargs:
        return {}
    try:
        bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):  # a method's name, or a builtin without a signature
        return None
    return dict(list(bound.arguments.items())[1:]) if node.args else None
