"""Rewrites of a network that FX cannot trace: neighbours are found by watching one call instead of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qbench.quant import model_call
from qbench.quant.canonical import batch_norm, function_trace, padding
from qbench.quant.canonical.rewrite import Rewrite


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Two layers, each called once, the second alone with the first's output; ``axes`` of that output."""

    first: str
    second: str
    axes: int


def find_neighbours(module: Any, example: tuple[Any, ...]) -> tuple[Neighbours, ...]:
    """The pairs of layers without children that follow each other in one call, in order.

    That no one else uses what lies between them is known of this call only: of a network whose control flow depends
    on values, another input may show another path.
    """
    import torch

    calls: dict[str, list[tuple[Any, Any]]] = {}
    hooks = []
    for name, part in module.named_modules():
        if not any(True for _ in part.children()):

            def note(_: Any, args: Any, result: Any, name: str = name) -> None:
                calls.setdefault(name, []).append((args[0] if len(args) == 1 else None, result))

            hooks.append(part.register_forward_hook(note))
    with model_call.hooked(hooks), torch.no_grad():
        run, outputs = function_trace.trace_calls(lambda: module(*example))
    uses: dict[int, int] = {}
    for tensor in (*(argument for call in run for argument in call.takes()), *function_trace.flatten_tensors(outputs)):
        uses[id(tensor)] = uses.get(id(tensor), 0) + 1
    once = {name: of_layer[0] for name, of_layer in calls.items() if len(of_layer) == 1}
    makers = {id(result): name for name, (_, result) in once.items() if isinstance(result, torch.Tensor)}
    return tuple(
        Neighbours(first=makers[id(source)], second=name, axes=source.dim())
        for name, (source, result) in once.items()
        if id(source) in makers and makers[id(source)] != name and uses.get(id(source)) == 1 and result is not source
    )


def fold_paddings(module: Any, example: tuple[Any, ...]) -> list[Rewrite]:
    """Takes a padding layer with zeros, the same on both sides, into the convolution after it."""
    from torch import nn

    rewrites = []
    for pair in find_neighbours(module, example):
        pairs, layer = padding.pairs_of(module.get_submodule(pair.first)), module.get_submodule(pair.second)
        if pairs is None or not padding.convolves(layer) or layer.padding_mode != "zeros":
            continue
        inner = padding.of_argument(layer.padding, layer.kernel_size, layer.dilation)
        total = padding.add_pads(inner, pairs) if len(pairs) == len(inner) else ()
        if total and padding.symmetric(total):
            padding.set_padding(layer, total)
            module.set_submodule(pair.first, nn.Identity())
            rewrites.append(Rewrite(what=f"zero padding folded into its {type(layer).__name__}", name=pair.second))
    return rewrites


def fold_batch_norms(module: Any, example: tuple[Any, ...]) -> list[Rewrite]:
    """Takes each BatchNorm into the convolution or linear layer before it; an Identity stands in its place."""
    from torch import nn

    rewrites = []
    for pair in find_neighbours(module, example):
        layer, norm = module.get_submodule(pair.first), module.get_submodule(pair.second)
        if (
            not batch_norm.is_norm(norm)
            or not batch_norm.takes_norm(layer)
            or not batch_norm.fits(layer, norm, pair.axes)
        ):
            continue
        if batch_norm.fold(layer, norm):
            module.set_submodule(pair.second, nn.Identity())
            change = f"{type(norm).__name__} folded into {type(layer).__name__}"
            rewrites.append(Rewrite(what=change, name=pair.second))
    return rewrites
