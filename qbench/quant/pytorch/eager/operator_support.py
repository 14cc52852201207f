"""What eager mode can do in int8, by module class, function and method name."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

# Methods of a tensor that keep its scale: they run on an int8 tensor as they stand.
METHODS = frozenset(
    {
        "chunk", "clamp", "clone", "contiguous", "detach", "expand", "flatten", "mean", "permute", "repeat", "reshape",
        "split", "squeeze", "transpose", "unflatten", "unsqueeze", "view",
    }
)  # fmt: skip
# What asks an int8 tensor for its shape only.
SHAPES = frozenset({"dim", "ndim", "ndimension", "numel", "shape", "size"})
_TORCH = (
    "chunk", "clamp", "clone", "flatten", "mean", "permute", "reshape", "split", "squeeze", "transpose", "unsqueeze",
)  # fmt: skip
_FUNCTIONAL = (
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "interpolate", "max_pool1d", "max_pool2d",
    "max_pool3d", "pixel_shuffle",
)  # fmt: skip


@functools.cache
def heavy() -> frozenset[type]:
    """Layers that multiply and accumulate and have an int8 class; their inputs are quantized for them."""
    from torch import nn

    transposed = {nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d}
    return frozenset({nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d} | transposed)


@functools.cache
def observed() -> frozenset[type]:
    """Layers that get an int8 class with an output range of their own; int8 only where their input is."""
    from torch import nn

    return frozenset(
        {
            nn.BatchNorm2d, nn.BatchNorm3d, nn.ELU, nn.GroupNorm, nn.Hardswish, nn.InstanceNorm1d, nn.InstanceNorm2d,
            nn.InstanceNorm3d, nn.LayerNorm, nn.LeakyReLU, nn.PReLU,
        }
    )  # fmt: skip


@functools.cache
def transparent() -> frozenset[type]:
    """Layers that run on an int8 tensor as they stand: they keep its scale, or have a fixed one (sigmoid, tanh)."""
    from torch import nn

    return frozenset(
        {
            nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AvgPool2d, nn.AvgPool3d, nn.ChannelShuffle, nn.Dropout,
            nn.Dropout2d, nn.Dropout3d, nn.Flatten, nn.Hardsigmoid, nn.Hardtanh, nn.Identity, nn.MaxPool1d,
            nn.MaxPool2d, nn.MaxPool3d, nn.PixelShuffle, nn.ReLU, nn.ReLU6, nn.Sigmoid, nn.Tanh, nn.Unflatten,
            nn.Upsample, nn.UpsamplingBilinear2d, nn.UpsamplingNearest2d,
        }
    )  # fmt: skip


@functools.cache
def fixed() -> frozenset[type]:
    """Of the transparent ones those with a fixed output scale over all 256 levels, which QAT must simulate."""
    from torch import nn

    return frozenset({nn.Hardsigmoid, nn.Sigmoid, nn.Tanh})


@functools.cache
def functions() -> frozenset[Any]:
    """Functions that keep the scale of an int8 tensor, as objects."""
    import torch
    from torch.nn import functional

    tables = [(torch, _TORCH), (functional, _FUNCTIONAL)]
    return frozenset(getattr(where, name) for where, names in tables for name in names)


@functools.cache
def arithmetic() -> dict[Any, str]:
    """Function or method name -> the method of ``FloatFunctional`` that observes it."""
    import torch

    return {
        operator.add: "add", operator.iadd: "add", torch.add: "add", "add": "add", "add_": "add",
        operator.mul: "mul", operator.imul: "mul", torch.mul: "mul", "mul": "mul", "mul_": "mul",
        torch.cat: "cat", torch.concat: "cat",
    }  # fmt: skip


@functools.cache
def activations() -> dict[Any, tuple[Callable[..., Any], tuple[str, ...]]]:
    """Function or method name -> the module that does the same, and the names of the arguments it takes over; those
    that ``canonical.functional_ops`` knows are left out."""
    import torch
    from torch import nn
    from torch.nn import functional

    sigmoid: tuple[Callable[..., Any], tuple[str, ...]] = (nn.Sigmoid, ())
    tanh: tuple[Callable[..., Any], tuple[str, ...]] = (nn.Tanh, ())
    return {
        torch.sigmoid: sigmoid, functional.sigmoid: sigmoid, "sigmoid": sigmoid,
        torch.tanh: tanh, functional.tanh: tanh, "tanh": tanh,
        functional.hardsigmoid: (nn.Hardsigmoid, ()),
        functional.hardswish: (nn.Hardswish, ()),
        functional.leaky_relu: (nn.LeakyReLU, ("negative_slope",)),
        functional.elu: (nn.ELU, ("alpha",)),
    }  # fmt: skip


def fuses_with_relu(module: Any, targets: list[str]) -> bool:
    """Whether torch fuses these layers (by name) with a ReLU in the place of the last: not for transposed convolutions,
    nor for Linear with a BatchNorm between."""
    from torch import nn

    kind = type(module.get_submodule(targets[0]))
    return kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d) or (kind is nn.Linear and len(targets) == 2)


@functools.cache
def float_only() -> dict[type, str]:
    """Layers with weights that stay float in static eager mode, and why."""
    from torch import nn

    recurrent = "torch has no static int8 kernel for recurrent layers; mode dynamic covers them"
    lookup = "a table look-up multiplies nothing; its table stays float"
    attention = "torch's attention reads weights past its Linear layers, and with a mask qbench leaves it so"
    return {
        **dict.fromkeys((nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell), recurrent),
        **dict.fromkeys((nn.Embedding, nn.EmbeddingBag), lookup),
        **dict.fromkeys((nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerEncoder), attention),
        **dict.fromkeys((nn.TransformerDecoderLayer, nn.TransformerDecoder, nn.Transformer), attention),
        nn.Bilinear: "torch has no int8 kernel for Bilinear",
    }


def why_float(part: Any) -> str | None:
    """Why a layer with weights has no int8 class in eager mode; None for one that has one, or has no weights."""
    kind = type(part)
    if kind in float_only():
        return float_only()[kind]
    base = next((plain for plain in heavy() if isinstance(part, plain)), None)
    if kind in heavy() or base is None:
        return None
    return f"{kind.__name__} is a subclass of {base.__name__}, which quantizers do not match; canonicalize rewrites it"
