"""Zero padding in int8: FX has no pattern for it and pads in float, between a dequantize and a quantize of its own.

Padding with zeros changes no value and zero is a level of every range, so it can keep its input's scale and work on the
int8 tensor itself.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from qbench.quant.canonical import padding
from qbench.quant.pytorch.clamp_fusion import watching

_PADS = (nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d)


def share(prepared: Any) -> int:
    """The number of paddings whose output now has its input's observer; changes the graph of ``prepared``."""
    count = 0
    for node in prepared.graph.nodes:
        source, behind = _around(node, prepared)
        if not behind:
            continue
        observer = watching(source, prepared)
        name = f"padded_{count}"
        prepared.add_submodule(name, getattr(observer, "inner", observer))
        for user in behind:
            user.target = name
        count += 1
    prepared.recompile()
    return count


def shared(prepared: Any) -> tuple[str, ...]:
    """The names of the nodes that pad between two places of one observer."""
    pads = []
    for node in prepared.graph.nodes:
        source, behind = _around(node, prepared)
        observer = watching(source, prepared)
        if behind and all(watching(user, prepared) is getattr(observer, "inner", observer) for user in behind):
            pads.append(str(node.name))
    return tuple(pads)


def lower(int8: Any, names: tuple[str, ...]) -> int:
    """The number of paddings of those names that now work on int8 tensors; changes the graph of a converted module."""
    count = 0
    for node in list(int8.graph.nodes):
        source: Any = node.args[0] if node.args else None
        if node.name not in names or getattr(source, "target", None) != "dequantize":
            continue
        again = [user for user in node.users if user.target is torch.quantize_per_tensor]
        if len(again) != len(node.users):
            continue
        node.replace_input_with(source, source.args[0])
        for user in again:
            user.replace_all_uses_with(node)
            int8.graph.erase_node(user)
        count += 1
    int8.graph.eliminate_dead_code()
    int8.recompile()
    return count


def zeros_of(node: Any, module: Any) -> padding.Pairs | None:
    """The zeros that a node puts around both axes of its input's images; None for any other node."""
    if not isinstance(node, torch.fx.Node) or not _pads_zeros(node, module):
        return None
    if node.op == "call_module":
        return padding.pairs_of(module.get_submodule(node.target))
    return padding.of_pad(node.args[1] if len(node.args) > 1 else node.kwargs.get("pad"), 2)


def _around(node: Any, prepared: Any) -> tuple[Any, list[Any]]:
    """The observed input of a padding with zeros, and the observers behind it when nothing else is; else (None, [])."""
    source: Any = node.args[0] if node.args else None
    if not _pads_zeros(node, prepared) or watching(source, prepared) is None:
        return None, []
    behind = [user for user in node.users if watching(user, prepared) is not None]
    return (source, behind) if len(behind) == len(node.users) else (None, [])


def _pads_zeros(node: Any, prepared: Any) -> bool:
    if node.op == "call_module":
        return type(prepared.get_submodule(node.target)) in _PADS
    if node.op != "call_function" or node.target is not functional.pad:
        return False
    mode = node.args[2] if len(node.args) > 2 else node.kwargs.get("mode", "constant")
    value = node.args[3] if len(node.args) > 3 else node.kwargs.get("value")
    return mode == "constant" and value in (None, 0)
