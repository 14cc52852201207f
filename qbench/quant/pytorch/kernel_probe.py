"""Whether an engine's int8 kernels compute what they should for the very layers of a network, on this CPU.

Some do not, silently. On torch 2.13 (x86, with VNNI and without) fbgemm's transposed convolution with a 2 x 2 kernel,
onednn's with another number of outputs than inputs, and every PReLU return unrelated values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from qbench.quant.pytorch.torch_ao import known_warnings, nnq

_LEAST_DB = 10.0  # a right kernel rounds once, to 40 dB or so; the values are too small to saturate 16 bits
_SCALE, _ZERO = 0.02, 20
_BATCHES = (1, 4)
# Beyond this a kernel is taken as it is: the probe would cost seconds.
_MOST_WEIGHTS = 4_000_000


def wrong_kernels(module: Any, names: frozenset[str] = frozenset()) -> dict[str, str]:
    """Layer name -> why its int8 kernel on the process's engine cannot be used; ``names`` are not asked about.

    Every convolution, transposed convolution and PReLU is given small random weights of its shape and run on random
    int8 values, one example and several (fbgemm goes another way for each); the result is held against the same
    computation in float.
    """
    reasons: dict[str, str] = {}
    answers: dict[str, str | None] = {}
    for name, part in module.named_modules():
        if name in names or type(part) not in (*_KINDS, nn.PReLU) or part.weight.numel() > _MOST_WEIGHTS:
            continue
        shape = repr(part)
        if shape not in answers:
            answers[shape] = _why_wrong(part)
        if (reason := answers[shape]) is not None:
            reasons[name] = reason
    return reasons


def _why_wrong(layer: Any) -> str | None:
    engine = torch.backends.quantized.engine
    if isinstance(getattr(layer, "padding", None), str):
        return f"no int8 kernel takes padding='{layer.padding}'; give it in numbers"
    try:
        level = _of_prelu(layer) if type(layer) is nn.PReLU else min(_of_convolution(layer, n) for n in _BATCHES)
    except RuntimeError as error:
        return f"{engine} has no kernel for it: {str(error).splitlines()[0]}"
    if level < _LEAST_DB:
        return f"{engine}'s int8 kernel computes this shape wrongly on this CPU (probed: {level:.0f} dB)"
    return None


def _of_prelu(layer: Any) -> float:
    """Signal to noise of one call of an int8 PReLU with as many slopes, in dB."""
    x = torch.quantize_per_tensor(
        torch.linspace(-2, 2, 64).repeat(1, layer.num_parameters, 1, 1), 0.02, 120, torch.quint8
    )
    slopes = torch.quantize_per_tensor(torch.linspace(0.1, 0.4, layer.num_parameters), 0.4 / 255, 0, torch.quint8)
    with torch.inference_mode(), known_warnings():
        expected = functional.prelu(x.dequantize(), slopes.dequantize())
        kernel = nnq.PReLU(0.02, 120, layer.num_parameters)
        kernel.set_weight(slopes)
        return _decibels(expected, kernel(x))


def _decibels(expected: Any, actual: Any) -> float:
    noise = (actual.dequantize() - expected).square().sum().clamp_min(1e-12)
    return float(10 * torch.log10(expected.square().sum() / noise))


def _of_convolution(layer: Any, batch: int) -> float:
    """Signal to noise of one call of a convolution's int8 kernel, in dB."""
    random = torch.Generator().manual_seed(0)
    dimensions = layer.weight.dim() - 2
    size = [2 * (kernel - 1) * dilation + 3 for kernel, dilation in zip(layer.kernel_size, layer.dilation, strict=True)]
    # Small enough on both sides for sums in 16 bits.
    levels = torch.randint(0, 64, (batch, layer.in_channels, *size), generator=random)
    x = torch.quantize_per_tensor((levels - _ZERO) * _SCALE, _SCALE, _ZERO, torch.quint8)
    integers = torch.randint(-31, 32, layer.weight.shape, generator=random)
    weight = torch.quantize_per_tensor(integers * _SCALE, _SCALE, 0, torch.qint8)
    transposed = type(layer).__name__.startswith("ConvTranspose")
    name = f"{'conv_transpose' if transposed else 'conv'}{dimensions}d"
    shared = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}
    if transposed:
        shared["output_padding"] = layer.output_padding
    with torch.inference_mode(), known_warnings():
        expected = getattr(functional, name)(x.dequantize(), weight.dequantize(), None, **shared)
        kernel = _KINDS[type(layer)](layer.in_channels, layer.out_channels, layer.kernel_size, bias=False, **shared)
        kernel.set_weight_bias(weight, None)
        kernel.scale, kernel.zero_point = float(expected.abs().max()) / 127, 128
        kernel.weight()  # what cannot be unpacked cannot be saved
        return _decibels(expected, kernel(x))


_KINDS = {
    getattr(nn, name): getattr(nnq, name)
    for name in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
}
