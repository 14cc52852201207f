"""The recipe for eager mode: the quantization of each layer, in the build and in the trial before it."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from qbench.quant.pytorch import qconfig, torch_ao
from qbench.quant.pytorch.eager import fusion_patterns, insert_stubs
from qbench.quant.recipe import Recipe

_OWN = "qbench_own_qconfig"  # what a layer and its copies have from the network's author


def mark_own(module: Any, own: Any) -> Any:
    """The network, whose layers carry what its author said (``own_qconfig.OwnQConfigs``; None: nothing)."""
    for name, part in module.named_modules() if own is not None else ():
        setattr(part, _OWN, own.of(name, type(part)))
    return module


def of_layers(engine: str, recipe: Recipe, *, training: bool, own: Any = None) -> insert_stubs.Qconfig:
    """Layer -> its quantization; activations that end at ``ends`` where the recipe clips. With ``own`` it is that which
    ``mark_own`` put there; what qbench puts in has none, and takes that which stands for the network."""
    from torch import nn

    if own is not None:
        return lambda part, _: getattr(part, _OWN, own.between)

    def of(part: Any, ends: tuple[float, float] | None) -> Any:
        own = qconfig.qconfig(engine, recipe, training=training, layer=type(part))
        if type(part) is nn.PReLU:
            own = torch_ao.QConfig(activation=own.activation, weight=slope_observer())
        return qconfig.clipped(own, *ends) if ends is not None and own is not None else own

    return of


def cheap(recipe: Recipe) -> Recipe:
    """The recipe for a trial: it runs the same kernels, whatever the ranges are."""
    if recipe.framework_default:
        return recipe
    return replace(recipe, calibrator="minmax", percentile=None)


def clip(recipe: Recipe) -> fusion_patterns.Clip | None:
    """Levels above a reduced range, or below a symmetric one, are there at inference: then the activation stays."""
    if recipe.framework_default or not recipe.clip_ranges:
        return None
    return "range" if recipe.reduce_range or recipe.symmetric else "replace"


@functools.cache
def slope_observer() -> type:
    """torch's int8 PReLU multiplies positive values by a one in the slope's own scale, so one must be in its range: a
    slope of 0.25 alone has a scale of 0.25 / 255, in which one saturates to 0.25."""
    import torch

    class Slope(torch_ao.MinMaxObserver):  # type: ignore[misc]  # torch is Any to mypy here
        def forward(self, slope: Any) -> Any:
            super().forward(torch.cat([slope.flatten(), torch.ones(1)]))
            return slope

    return Slope
