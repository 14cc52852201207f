"""Weights that are computed at every call (weight norm, spectral norm, any parametrization), and copies of those."""

from __future__ import annotations

import copy
from typing import Any

from qbench.quant.canonical import listed_layers
from qbench.quant.canonical.rewrite import Rewrite


def copy_module(module: Any) -> Any:
    """A deep copy, whose lists of layers follow the layers' names; weights that a hook computed, which deepcopy
    refuses, are copied by value until the hook runs."""
    import torch

    computed = {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, torch.Tensor) and not value.is_leaf
    }
    copied = copy.deepcopy(module, computed)
    listed_layers.follow_names(copied)
    return copied


def materialize(module: Any) -> list[Rewrite]:
    """Gives layers whose weights are computed from others, by a parametrization or an older hook, the computed ones.

    Changes ``module``, which must be in eval mode; what it computes stays the same.
    """
    from torch.nn.utils import parametrize

    rewrites = []
    for name, part in module.named_modules():
        if parametrize.is_parametrized(part):
            _materialize_parametrized(part)
            rewrites.append(Rewrite(what=f"parametrization of {type(part).__name__} computed once", name=name))
        elif _materialize_hooks(part):
            rewrites.append(Rewrite(what=f"norm of a {type(part).__name__}'s weight computed once", name=name))
    return rewrites


def _materialize_parametrized(part: Any) -> None:
    """torch's own ``remove_parametrizations`` would change the class, which copies share with what they copy."""
    import torch
    from torch import nn
    from torch.nn.utils import parametrize

    with torch.no_grad():
        computed = {name: getattr(part, name).detach().clone() for name in part.parametrizations}
    trained = {name: bool(list(part.parametrizations[name].parameters())) for name in computed}
    part.__class__ = parametrize.type_before_parametrizations(part)
    del part.parametrizations
    for name, value in computed.items():
        if trained[name]:
            part.register_parameter(name, nn.Parameter(value))
        else:
            part.register_buffer(name, value)


def _materialize_hooks(part: Any) -> bool:
    from torch.nn import utils
    from torch.nn.utils.spectral_norm import SpectralNorm, remove_spectral_norm
    from torch.nn.utils.weight_norm import WeightNorm

    hooks = [hook for hook in part._forward_pre_hooks.values() if isinstance(hook, WeightNorm | SpectralNorm)]
    for hook in hooks:
        remove = utils.remove_weight_norm if isinstance(hook, WeightNorm) else remove_spectral_norm
        remove(part, hook.name)
    return bool(hooks)
