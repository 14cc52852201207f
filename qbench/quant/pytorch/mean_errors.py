"""What rounded weights do to the means of a converted module's outputs, layer by layer, given back by their biases.

A layer is linear: the mean of what it gives is off by the rounding errors of its weights times its mean inputs. See
``quant.onnx.weights.mean_inputs``, which does the same before an int8 network is there; here the inputs are those of
the int8 layers themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from qbench.quant.halves import shrink_mean
from qbench.quant.pytorch.packed_layers import LayerKernel, Packed, find_rounded, layers
from qbench.quant.pytorch.torch_ao import known_warnings

EXAMPLES = 64  # that are looked at, at most: a picture has many places


@dataclass
class _Errors:
    """Of one layer: the rounding ``errors`` of its weight, and by half of the examples (every other one) how many there
    were and the sum of their mean errors, one for each output channel."""

    layer: Packed
    kernel: LayerKernel
    errors: Any
    counts: list[int] = field(default_factory=lambda: [0, 0])
    sums: list[Any] = field(default_factory=lambda: [0.0, 0.0])

    def look(self, _: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """A hook for the module of the layer."""
        means = find_means(self.kernel, inputs[0].dequantize(), self.errors).double()
        first = sum(self.counts)
        for half in (0, 1):
            own = means[(half + first) % 2 :: 2]
            self.counts[half] += len(own)
            self.sums[half] = self.sums[half] + own.sum(dim=0)

    def give_back(self) -> None:
        """Takes the mean error off the bias; of a layer that two examples at least have met."""
        if not all(self.counts):
            return
        halves = (total.numpy() / count for total, count in zip(self.sums, self.counts, strict=True))
        error = torch.from_numpy(shrink_mean(*halves)).float()
        self.layer.exchange(self.layer.weight, lambda bias: -error if bias is None else bias.detach() - error)


def give_back(int8: Any, floats: Mapping[str, Any], batches: Iterable[tuple[Any, ...]]) -> None:
    """Changes the biases of a converted module in place, of the layers that it calls as modules and whose float weight
    is known (``floats``: by name). ``batches``: a tensor for each input, the first ``EXAMPLES`` examples are looked at.
    """
    watched = {}
    for layer in layers(int8):
        weight, is_module = layer.weight, layer.attribute == "_packed_params"
        if is_module and (rounded := find_rounded(weight, layer.find_float(floats))) is not None:
            errors = weight.dequantize() - rounded
            watched[layer.name] = _Errors(layer=layer, kernel=layer.kernel, errors=errors)
    with ExitStack() as hooks:
        for name, part in int8.named_modules():
            if name in watched:
                hooks.callback(part.register_forward_hook(watched[name].look).remove)
        with torch.inference_mode(), known_warnings():
            for batch in _take(batches, EXAMPLES):
                int8(*batch)
    for errors in watched.values():
        errors.give_back()


def _take(batches: Iterable[tuple[Any, ...]], count: int) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield tuple(tensor[:count] for tensor in batch)
        count -= len(batch[0])
        if count <= 0:
            return


def find_means(kernel: LayerKernel, x: Any, weight: Any) -> Any:
    """The mean of what a layer without bias gives over all places: (examples, output channels)."""
    if kernel.kind == "linear":
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
