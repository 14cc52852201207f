"""Function calls in a traced network, written as the modules that eager mode can fuse, observe and swap."""

from __future__ import annotations

import inspect
from typing import Any

from qbench.quant.eager import kinds


def to_modules(traced: Any) -> None:
    """Rewrites activations, dropout, ``F.linear`` and ``F.conv*`` of a GraphModule into modules called with their input
    by position, in place.

    A call whose arguments do not say the same as the module is left as it is.
    """
    for node in list(traced.graph.nodes):
        if node.op not in ("call_function", "call_method"):
            continue
        made = _activation(node) or _dropout(node) or _layer(node, traced)
        if made is None:
            continue
        name = unused(traced, f"{node.name}_module")
        traced.add_submodule(name, made.train(traced.training))
        with traced.graph.inserting_after(node):
            new = traced.graph.call_module(name, (node.args[0],))
        node.replace_all_uses_with(new)
        traced.graph.erase_node(node)
    for node in traced.graph.nodes:
        if node.op == "call_module" and not node.args and list(node.kwargs) == ["input"]:
            node.args, node.kwargs = (node.kwargs["input"],), {}  # int8 layers do not know the keyword
    traced.delete_all_unused_submodules()
    traced.recompile()


def unused(traced: Any, wish: str) -> str:
    """A name that no attribute of the module has: the wish, or the wish and a number."""
    name, count = wish, 0
    while hasattr(traced, name):
        count += 1
        name = f"{wish}_{count}"
    return name


def _activation(node: Any) -> Any | None:
    found = kinds.activations().get(node.target)
    if found is None:
        return None
    make, taken = found
    given = _arguments(node)
    if given is None:
        return None
    given.pop("inplace", None)
    wanted = {name: given.pop(name) for name in taken if name in given}
    return None if given else make(**wanted)


def _dropout(node: Any) -> Any | None:
    """``F.dropout(x, p, training=self.training)``, traced in eval mode; without ``training`` it is never turned off."""
    from torch import nn
    from torch.nn import functional

    given = _arguments(node) if node.target is functional.dropout else None
    if given is None or given.get("training", True) is not False:
        return None
    return nn.Dropout(given.get("p", 0.5))


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


def _layer(node: Any, traced: Any) -> Any | None:
    """A plain layer around the parameters of ``F.linear`` or ``F.conv*``; None for any other call."""
    import torch
    from torch import nn
    from torch.nn import functional

    convolutions = {
        torch.conv1d: nn.Conv1d, torch.conv2d: nn.Conv2d, torch.conv3d: nn.Conv3d,
        functional.conv1d: nn.Conv1d, functional.conv2d: nn.Conv2d, functional.conv3d: nn.Conv3d,
    }  # fmt: skip
    if node.target is not functional.linear and node.target not in convolutions:
        return None
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    weight, bias = (_parameter(given.pop(name, None), traced) for name in ("weight", "bias"))
    given.pop("input", None)
    if weight is None or weight is False or bias is False or not node.args:
        return None
    if node.target is functional.linear:
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    else:
        kind, groups = convolutions[node.target], given.get("groups", 1)
        if any(hasattr(value, "op") for value in given.values()) or not isinstance(groups, int):
            return None
        channels, kernel = weight.shape[1] * groups, tuple(weight.shape[2:])
        layer = kind(channels, weight.shape[0], kernel, bias=bias is not None, device="meta", **given)
    layer.weight = weight
    layer.bias = bias
    return layer


def _parameter(node: Any, traced: Any) -> Any | None:
    """The parameter that a node reads; None for None; False for a value that is computed."""
    from torch import nn

    if node is None:
        return None
    if getattr(node, "op", None) != "get_attr":
        return False
    owner, _, name = node.target.rpartition(".")
    found = getattr(traced.get_submodule(owner), name)
    return found if isinstance(found, nn.Parameter) else False
