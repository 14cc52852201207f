"""Rewrites of a graph that leave the arithmetic alone: other spellings, own instances, nothing that does nothing."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from qbench.quant import layer_selection
from qbench.quant.canonical import graph as graphs
from qbench.quant.canonical.rewrite import Rewrite


def drop_idle(graph: Any, *, training: bool) -> list[Rewrite]:
    """Takes out Identity and, except for ``training``, dropout."""
    from torch import nn

    droppings = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
    kinds = (nn.Identity,) if training else (nn.Identity, *droppings)
    rewrites = []
    for node in list(graph.graph.nodes):
        part = graphs.layer(graph, node)
        if type(part) in kinds and graphs.single_input(node) is not None:
            rewrites.append(Rewrite(what=f"{type(part).__name__} taken out", name=node.target))
            graphs.remove(graph, node)
        elif _idle_dropout(node):
            rewrites.append(Rewrite(what="functional dropout taken out", name=node.name))
            graphs.remove(graph, node)
    return rewrites


def _idle_dropout(node: Any) -> bool:
    """A functional dropout that was traced in eval mode."""
    from torch.nn import functional

    kinds = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d)
    if node.op != "call_function" or node.target not in (*kinds, functional.alpha_dropout):
        return False
    arguments = dict(zip(("input", "p", "training"), node.args, strict=False)) | node.kwargs
    default = node.target is not functional.alpha_dropout
    return arguments.get("training", default) is False


def separate_shared(graph: Any, *, weights: bool) -> list[Rewrite]:
    """Gives each use of a shared layer an instance of its own, which shares its tensors: one without weights to
    multiply by (an activation, a pooling, a norm), with ``weights`` one that has some, too. Of these the text says how
    many bytes of int8 weights that adds to a file."""
    rewrites = []
    for nodes in graphs.calls_of(graph).values():
        layer = graphs.layer(graph, nodes[0])
        if len(nodes) < 2 or not _separable(layer, weights=weights):
            continue
        change = f"shared {type(layer).__name__} given one instance per use"
        more = (len(nodes) - 1) * _weights(layer)
        rewrites.append(
            Rewrite(what=change + (f", {more:,} bytes of int8 weights more" if more else ""), name=nodes[0].target)
        )
        for node in nodes[1:]:
            name = graphs.free_name(graph, node.target)
            graph.add_submodule(name, _twin(layer))
            node.target = name
    return rewrites


def _weights(layer: Any) -> int:
    """How many weights a layer multiplies by."""
    multiplies: bool = isinstance(layer, layer_selection.multiplying())
    return int(layer.weight.numel()) if multiplies else 0


def _twin(layer: Any) -> Any:
    """A copy with the very same parameters and buffers: what trains one trains the other."""
    tensors = (*layer.parameters(), *layer.buffers())
    return copy.deepcopy(layer, {id(tensor): tensor for tensor in tensors})


def _separable(layer: Any, *, weights: bool) -> bool:
    """A layer of torch's own that holds no other and no state of its calls; a table of embeddings has no use for it."""
    from torch import nn

    if type(layer).__module__.partition(".")[0] != "torch" or any(True for _ in layer.children()):
        return False
    if isinstance(layer, nn.RNNBase | nn.RNNCellBase | nn.Embedding | nn.EmbeddingBag | nn.Bilinear):
        return False
    return weights or not isinstance(layer, layer_selection.multiplying())


def lift_constants(graph: Any, padded: Iterable[str]) -> None:
    """Gives each of the layers that are ``Sequential(padding, conv)`` now its name back: the convolution takes it, its
    padding is called ``NAME_padding``."""
    for name in padded:
        pair = graph.get_submodule(name)
        beside = graphs.free_name(graph, f"{name}_padding")
        graph.add_submodule(beside, pair.padding)
        graph.set_submodule(name, pair.conv)
        renamed = {f"{name}.padding": beside, f"{name}.conv": name}
        for node in graph.graph.nodes:
            if node.op == "call_module":
                node.target = renamed.get(node.target, node.target)
