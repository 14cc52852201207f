"""Dynamic quantization: int8 weights, activations quantized as they come; which layers, and how."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from qbench.errors import BuildError
from qbench.quant import selection, torch_ao
from qbench.quant.flow import Converted
from qbench.quant.recipe import Recipe

_NO_KERNEL = "dynamic quantization covers Linear, LSTM and GRU layers only"


def covered() -> tuple[type, ...]:
    """The types of layer that have a dynamic kernel; a subclass of one has none."""
    return (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)


def configurations(module: Any, recipe: Recipe, example: tuple[Any, ...]) -> dict[str, Any]:
    """Layer name -> its QConfig, for every layer that is covered and that the recipe does not keep float.

    Weights are per channel where the recipe asks for it and the layer is Linear; recurrent layers have per-tensor
    kernels only. Raises ``BuildError`` where no layer is left.
    """
    kept = selection.float_by_recipe(module, recipe, example)
    found = {
        name: torch_ao.per_channel_dynamic_qconfig
        if recipe.per_channel and type(part) is nn.Linear
        else torch_ao.default_dynamic_qconfig
        for name, part in module.named_modules()
        if type(part) in covered() and selection.below(name, kept) is None
    }
    if not found:
        raise BuildError(
            "dynamic quantization covers Linear, LSTM and GRU layers, and this model has none "
            "that is not skipped; use static instead"
        )
    return found


def float_reasons(module: Any, recipe: Recipe, example: tuple[Any, ...]) -> dict[str, str]:
    """Layer with weights to multiply -> why it stays float in dynamic quantization."""
    kept = selection.float_by_recipe(module, recipe, example)
    found: dict[str, str] = {}
    for name, part in module.named_modules():
        if isinstance(part, selection.multiplying()):
            reason = selection.below(name, kept) or (None if type(part) in covered() else _NO_KERNEL)
            if reason:
                found[name] = reason
    return found


def by_module(module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...]) -> Converted:
    """A copy whose covered layers are exchanged for dynamic ones; its code is not traced, so any control flow works.

    Raises ``BuildError`` where no layer is covered, and where the process runs another engine.
    """
    torch_ao.require_engine(engine)
    spec = configurations(module, recipe, example)
    with torch_ao.known_warnings():
        int8 = torch_ao.quantize_dynamic(copy.deepcopy(module).eval(), spec, dtype=torch.qint8)
    return Converted(module=int8, float_reasons=float_reasons(module, recipe, example))
