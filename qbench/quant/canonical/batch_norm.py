"""Folding BatchNorm into the layer before it: the arithmetic, and which pairs of layers it holds for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Norm:
    """The tensors of a BatchNorm that no layer holds, under the names that they have there."""

    running_mean: Any
    running_var: Any
    weight: Any
    bias: Any
    eps: float

    @property
    def num_features(self) -> int:
        """The number of channels."""
        return len(self.running_mean)


def is_norm(module: Any) -> bool:
    """A BatchNorm of torch's own that uses the statistics it learned, not those of the batch."""
    from torch import nn

    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    return type(module) in kinds and module.running_mean is not None and module.running_var is not None


def takes_norm(module: Any) -> bool:
    """A layer of torch's own whose output channels a BatchNorm can scale and shift."""
    from torch import nn

    return type(module) in (*_convolutions(), *_transposed(), nn.Linear)


def fits(module: Any, norm: Any, output_axes: int) -> bool:
    """Whether the BatchNorm's channels are the layer's: axis 1 of its output, for Linear too."""
    from torch import nn

    channels = module.out_features if type(module) is nn.Linear else module.out_channels
    batched = 2 if type(module) is nn.Linear else module.weight.dim()
    return bool(norm.num_features == channels and output_axes == batched)


def fold(module: Any, norm: Any) -> bool:
    """Takes ``norm`` into the layer's weight and bias; False, and nothing done, where a result is not finite.

    With s = gamma / sqrt(running_var + eps) per output channel: weight s W, bias s (b - running_mean) + beta,
    computed in float64.
    """
    import torch
    from torch import nn

    with torch.no_grad():
        scale = torch.rsqrt(norm.running_var.double() + norm.eps)
        if norm.weight is not None:
            scale = scale * norm.weight.double()
        shift = norm.bias.double() if norm.bias is not None else torch.zeros_like(scale)
        bias = module.bias.double() if module.bias is not None else torch.zeros_like(scale)
        weight = (module.weight.double() * _by_output(module, scale)).to(module.weight.dtype)
        bias = ((bias - norm.running_mean.double()) * scale + shift).to(module.weight.dtype)
        if not bool(weight.isfinite().all() and bias.isfinite().all()):
            return False
        module.weight = nn.Parameter(weight, requires_grad=module.weight.requires_grad)
        module.bias = nn.Parameter(bias, requires_grad=module.weight.requires_grad)
    return True


def _by_output(module: Any, scale: Any) -> Any:
    """One number per output channel, in the shape that multiplies the weight."""
    weight = module.weight
    ones = (1,) * (weight.dim() - 2)
    if type(module) not in _transposed():
        return scale.reshape(-1, 1, *ones)
    # A transposed convolution's weight is (inputs, outputs / groups, ...), the groups one after the other.
    by_group = scale.reshape(module.groups, 1, -1)
    inputs = weight.shape[0] // module.groups
    return by_group.expand(module.groups, inputs, -1).reshape(*weight.shape[:2], *ones)


def _convolutions() -> tuple[Any, ...]:
    from torch import nn

    return nn.Conv1d, nn.Conv2d, nn.Conv3d


def _transposed() -> tuple[Any, ...]:
    from torch import nn

    return nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
