"""What calibration and training must have seen before an eager network is converted."""

from __future__ import annotations

from typing import Any

from qbench.errors import BuildError, first_names
from qbench.quant.pytorch import torch_ao

_SHOWN = 5
_PARTS = (".activation_post_process", ".weight_fake_quant")


def require_observed(prepared: Any) -> None:
    """Raises ``BuildError`` for an observer that saw nothing (torch only warns, and its layer then returns zeros), or
    that saw values that are no numbers."""
    import torch

    blind: dict[str, None] = {}
    endless: dict[str, None] = {}
    for name, part in prepared.named_modules():
        if not isinstance(part, torch_ao.ObserverBase) or not hasattr(part, "min_val"):
            continue
        low, high = part.min_val, part.max_val
        if low.numel() == 0 or bool(((low == torch.inf) & (high == -torch.inf)).any()):
            blind[_layer(name)] = None
        elif not bool(torch.isfinite(low).all() and torch.isfinite(high).all()):
            endless[_layer(name)] = None
    if blind:
        raise BuildError(
            f"calibration observed nothing at {first_names(blind, _SHOWN)}: is that part of the network unused? "
            "Name it in quantize.*.skip_layers"
        )
    if endless:
        raise BuildError(
            f"calibration met infinite values or NaN at {first_names(endless, _SHOWN)}: the network gives no number "
            "on these examples; check their preprocessing"
        )


def _layer(name: str) -> str:
    """The layer that an observer belongs to; one that stands alone in its graph goes by the name of the graph."""
    return min((name.partition(part)[0] for part in _PARTS), key=len).removesuffix(".module")


def once(prepared: Any) -> int:
    """The number of fused layers whose observer now sees each value once.

    torch.ao puts the observer of a fused layer (conv + relu: an ``nn.Sequential``) among its children, where it runs as
    the last of them, and calls it again from a hook (torch 2.13): twice the time, and a moving average moves twice.
    """
    from torch import nn

    count = 0
    for part in prepared.modules():
        if not isinstance(part, nn.Sequential) or "activation_post_process" not in part._modules:
            continue
        for key, hook in list(part._forward_hooks.items()):
            if getattr(hook, "__name__", "") == "_observer_forward_hook":
                del part._forward_hooks[key]
                count += 1
    return count
