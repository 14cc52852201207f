"""What rounded weights do to the means of a converted module's outputs, layer by layer, given back by their biases.

A layer is linear: the mean of what it gives is off by the rounding errors of its weights times its mean inputs. See
``quant.onnx.weights.mean_inputs``, which does the same before an int8 network is there; here the inputs are those of
the int8 layers themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from qbench.quant.halves import shrink_mean
from qbench.quant.pytorch.packed_layers import LayerKernel, find_rounded, layers
from qbench.quant.pytorch.torch_ao import known_warnings

EXAMPLES = 64  # that are looked at, at most: a picture has many places


@dataclass
class MeanErrors:
    """Of one layer: the rounding ``errors`` of its weight, and by half of the examples (every other one) how many there
    were and the sum of their mean errors, one for each output channel."""

    kernel: LayerKernel
    errors: Any
    counts: list[int] = field(default_factory=lambda: [0, 0])
    sums: list[Any] = field(default_factory=lambda: [0.0, 0.0])

    def add(self, x: Any) -> None:
        """Takes what the layer reads, as floats."""
        means = find_means(self.kernel, x, self.errors).double()
        first = sum(self.counts)
        for half in (0, 1):
            own = means[(half + first) % 2 :: 2]
            self.counts[half] += len(own)
            self.sums[half] = self.sums[half] + own.sum(dim=0)

    def find(self) -> Any:
        """By how much the means of the output channels are off; None where fewer than two examples were met."""
        if not all(self.counts):
            return None
        halves = (total.numpy() / count for total, count in zip(self.sums, self.counts, strict=True))
        return torch.from_numpy(shrink_mean(*halves)).float()


def give_back(int8: Any, floats: Mapping[str, Any], batches: Iterable[tuple[Any, ...]]) -> None:
    """Changes the biases of a converted module in place, of the layers that it calls as modules and whose float weight
    is known (``floats``: by name). ``batches``: a tensor for each input, the first ``EXAMPLES`` examples are looked at.
    """
    watched = {}
    for layer in layers(int8):
        weight, is_module = layer.weight, layer.attribute == "_packed_params"
        if is_module and (rounded := find_rounded(weight, layer.find_float(floats))) is not None:
            watched[layer.name] = layer, MeanErrors(kernel=layer.kernel, errors=weight.dequantize() - rounded)
    with ExitStack() as hooks:
        for name, part in int8.named_modules():
            if name in watched:
                hooks.callback(part.register_forward_hook(_watch(watched[name][1])).remove)
        with torch.inference_mode(), known_warnings():
            for batch in take(batches):
                int8(*batch)
    for layer, errors in watched.values():
        if (error := errors.find()) is not None:
            bias = layer.bias
            layer.exchange(layer.weight, -error if bias is None else bias.detach() - error)


def _watch(errors: MeanErrors) -> Callable[[Any, tuple[Any, ...], Any], None]:
    return lambda part, inputs, output: errors.add(inputs[0].dequantize())


def take(batches: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The batches with the first ``EXAMPLES`` examples."""
    left = EXAMPLES
    for batch in batches:
        yield tuple(tensor[:left] for tensor in batch)
        left -= len(batch[0])
        if left <= 0:
            return


def find_means(kernel: LayerKernel, x: Any, weight: Any) -> Any:
    """The mean of what a layer without bias gives over all places: (examples, output channels)."""
    if kernel.kind == "linear":
        x = x.reshape(1, -1) if x.dim() == 1 else x
        return x.reshape(len(x), -1, x.shape[-1]).mean(dim=1) @ weight.T
    x = x.unsqueeze(2) if x.dim() == kernel.dimensions + 1 else x  # one of one dimension is packed as one of two
    if kernel.kind == "conv_transpose":
        return kernel.exact(x, weight).flatten(2).mean(dim=2)
    means = _mean_windows(kernel, x, weight.shape[2:])
    grouped = means.reshape(len(x), kernel.groups, weight.shape[1], -1)
    of_groups = weight.reshape(kernel.groups, -1, weight.shape[1], grouped.shape[-1])
    return torch.einsum("ngit,goit->ngo", grouped, of_groups).flatten(1)


def _mean_windows(kernel: LayerKernel, x: Any, sides: tuple[int, ...]) -> Any:
    """What each weight of a convolution is multiplied with on average: (examples, input channels, taps)."""
    ends = [end for padding in reversed(kernel.padding) for end in (padding, padding)]
    padded = torch.nn.functional.pad(x, ends)
    spans = [
        [
            slice(tap * dilation, tap * dilation + (size - dilation * (side - 1) - 1) // stride * stride + 1, stride)
            for tap in range(side)
        ]
        for size, side, stride, dilation in zip(padded.shape[2:], sides, kernel.stride, kernel.dilation, strict=True)
    ]
    return torch.stack([padded[(..., *places)].flatten(2).mean(dim=2) for places in itertools.product(*spans)], dim=2)
