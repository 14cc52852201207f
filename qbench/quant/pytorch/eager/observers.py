"""The observers of an eager network: whose they are, and how often they are called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qbench.quant.pytorch import torch_ao

_PARTS = (".activation_post_process", ".weight_fake_quant")


def by_layer(prepared: Any) -> Iterator[tuple[str, Any]]:
    """The observers of a prepared network, each with the layer that it belongs to."""
    for name, part in prepared.named_modules():
        if isinstance(part, torch_ao.ObserverBase):
            yield _layer(name), part


def _layer(name: str) -> str:
    """The layer that an observer belongs to; one that stands alone in its graph goes by the name of the graph."""
    return min((name.partition(part)[0] for part in _PARTS), key=len).removesuffix(".module")


def call_once(prepared: Any) -> int:
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
