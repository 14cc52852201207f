"""Rewrites of a graph that take a neighbour into a convolution or linear layer: its padding, its BatchNorm."""

from __future__ import annotations

from typing import Any

from qbench.quant.canonical import batch_norm, padding
from qbench.quant.canonical import graph as graphs
from qbench.quant.canonical.rewrite import Rewrite


def fold_paddings(graph: Any) -> list[Rewrite]:
    """Takes zero padding before a convolution into its ``padding`` where both sides of each axis get the same.

    The convolution must be called once, and alone use the padded tensor.
    """
    rewrites = []
    for nodes in graphs.calls_of(graph).values():
        node = nodes[0]
        layer = graphs.layer(graph, node)
        if len(nodes) > 1 or not _convolves(layer):
            continue
        inner = padding.of_argument(layer.padding, layer.kernel_size, layer.dilation)
        total, sources = _before(graph, node, inner)
        if sources and padding.symmetric(total):
            padding.set_padding(layer, total)
            for source in sources:
                graphs.remove(graph, source)
            rewrites.append(Rewrite(what=f"zero padding folded into its {type(layer).__name__}", name=node.target))
    return rewrites


def _convolves(layer: Any) -> bool:
    return padding.convolves(layer) and layer.padding_mode == "zeros"


def _before(graph: Any, node: Any, inner: padding.Pairs) -> tuple[padding.Pairs, list[Any]]:
    """``own`` and the zeros of all paddings that end in ``node`` and nowhere else; the nodes of those."""
    sources: list[Any] = []
    total, user = inner, node
    while source := next(iter(user.all_input_nodes), None):
        pairs = _zeros(graph, source, len(inner))
        if pairs is None or graphs.only_user(source) is not user:
            break
        total, user = padding.add_pads(total, pairs), source
        sources.append(source)
    return total, sources


def _zeros(graph: Any, source: Any, spatial: int) -> padding.Pairs | None:
    """The zeros that a node adds around so many spatial axes, None where it is no such padding."""
    from torch.nn import functional

    if getattr(source, "op", "") == "call_function" and source.target is functional.pad:
        arguments = dict(zip(("input", "pad", "mode", "value"), source.args, strict=False)) | source.kwargs
        if arguments.get("mode", "constant") != "constant" or arguments.get("value") not in (None, 0):
            return None
        return padding.of_pad(arguments["pad"], spatial)
    pairs = padding.pairs_of(graphs.layer(graph, source))
    return pairs if pairs is not None and len(pairs) == spatial else None


def fold_batch_norms(graph: Any, example: tuple[Any, ...]) -> list[Rewrite]:
    """Takes each BatchNorm, a layer or a function, into the convolution or linear layer whose output it alone uses.

    Both must be called once. ``example`` shows how many axes the layer's output has.
    """
    rewrites = []
    calls = graphs.calls_of(graph)
    axes = _axes(graph, example)
    for node in list(graph.graph.nodes):
        norm = _norm(graph, node, calls)
        source = next(iter(node.all_input_nodes), None)
        layer = graphs.layer(graph, source)
        if norm is None or not batch_norm.takes_norm(layer) or graphs.only_user(source) is not node:
            continue
        if len(calls[id(layer)]) == 1 and batch_norm.fits(layer, norm, axes[source]) and batch_norm.fold(layer, norm):
            name, kind = (node.name, "batch_norm") if node.op == "call_function" else (node.target, type(norm).__name__)
            rewrites.append(Rewrite(what=f"{kind} folded into {type(layer).__name__}", name=name))
            graphs.remove(graph, node)
    return rewrites


def _norm(graph: Any, node: Any, calls: dict[int, list[Any]]) -> Any:
    """The BatchNorm that a node is, where it is called here only and its tensors are the network's own; else None."""
    from torch.nn import functional

    layer = graphs.layer(graph, node)
    if layer is not None:
        once = len(calls[id(layer)]) == 1 and graphs.single_input(node) is not None
        return layer if once and batch_norm.is_norm(layer) else None
    if node.op != "call_function" or node.target is not functional.batch_norm:
        return None
    names = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    arguments = dict(zip(names, node.args, strict=False)) | node.kwargs
    tensors = {name: graphs.own_tensor(graph, arguments.get(name)) for name in names[1:5]}
    fixed = all(tensors[name] is not None or arguments.get(name) is None for name in tensors)
    statistics = (tensors["running_mean"], tensors["running_var"])
    if not fixed or any(tensor is None for tensor in statistics) or arguments.get("training", False):
        return None
    return batch_norm.Norm(eps=arguments.get("eps", 1e-5), **tensors)


def _axes(graph: Any, example: tuple[Any, ...]) -> dict[Any, int]:
    """Each layer's node -> the number of axes of what it gave."""
    import torch

    axes: dict[Any, int] = {}

    class Interpreter(torch.fx.Interpreter):  # type: ignore[misc]  # torch is Any to mypy here
        def run_node(self, n: Any) -> Any:
            result = super().run_node(n)
            if isinstance(result, torch.Tensor):
                axes[n] = result.dim()
            return result

    with torch.no_grad():
        Interpreter(graph).run(*example)
    return axes
