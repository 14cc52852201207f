"""Which layers stay float because the recipe says so; the same in every flow."""

from __future__ import annotations

import fnmatch
from typing import Any

from qbench.errors import BuildError
from qbench.quant import model_call
from qbench.quant.recipe import Recipe

SKIPPED = "skipped by the recipe (skip_layers)"
FIRST = "the first layer stays float (first_layer_float)"
LAST = "the last layer stays float (last_layer_float)"


def float_by_recipe(module: Any, recipe: Recipe, example: tuple[Any, ...]) -> dict[str, str]:
    """Submodule name -> why the recipe keeps it float. A name stands for everything below it.

    ``recipe.skip_layers`` holds names of submodules or patterns (``fnmatch``: ``*``, ``?``, ``[]``); raises
    ``BuildError`` for one that matches nothing. First and last are the layers with weights to multiply (convolutions,
    Linear, recurrent, attention) that run first and last on ``example``, a batch of 1.
    """
    names = [name for name, _ in module.named_modules() if name]
    reasons: dict[str, str] = {}
    if recipe.first_layer_float or recipe.last_layer_float:
        order = in_order(module, example)
        if order and recipe.last_layer_float:
            reasons[order[-1]] = LAST
        if order and recipe.first_layer_float:
            reasons[order[0]] = FIRST
    unknown = []
    for pattern in recipe.skip_layers:
        matched = [name for name in names if name == pattern] or fnmatch.filter(names, pattern)
        reasons |= dict.fromkeys(matched, SKIPPED)
        if not matched:
            unknown.append(pattern)
    if unknown:
        raise BuildError(f"skip_layers: no layer named {', '.join(unknown)}; there are {', '.join(sorted(names))}")
    return reasons


def below(name: str, names: dict[str, str]) -> str | None:
    """The reason of the submodule itself or of the nearest one above it that is chosen; None without one."""
    while name:
        if name in names:
            return names[name]
        name = name.rpartition(".")[0]
    return None


def in_order(module: Any, example: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of the layers with weights to multiply, in the order in which they first run on a batch of 1."""
    order: dict[str, None] = {}
    hooks = [
        module.get_submodule(name).register_forward_pre_hook(lambda *_, name=name: order.setdefault(name))
        for name, part in module.named_modules()
        if name and isinstance(part, multiplying())
    ]
    with model_call.hooked(hooks):
        model_call.of_one_example(module, example)
    return tuple(order)


def multiplying() -> tuple[type, ...]:
    """The types of layer that multiply their input by weights and accumulate."""
    from torch import nn

    return (
        nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear,
        nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention,
    )  # fmt: skip
