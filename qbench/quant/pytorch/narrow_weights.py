"""Whether the sums of an int8 kernel hold, asked of the kernel itself; and weights with which they do.

x86 multiplies unsigned by signed bytes. ``vpmaddubsw`` adds two such products in 16 bits and stops at 32767, which two
full ones exceed (2 * 255 * 127); VNNI adds four in 32 bits. Which of the two a layer meets depends on its shape, the
engine, the CPU and the switches that hide instructions, so each layer is run: on torch 2.13 fbgemm's depthwise kernels
add in 16 bits on every CPU, and engine x86 takes them for more than 100 groups.

A sum of some products is largest where they all have one sign and all inputs are 255. So a layer is run twice on such
inputs, with its positive weights alone and with its negative ones, whichever products the kernel adds in 16 bits: two,
or more (fbgemm's depthwise kernel of 5 x 5). A bias takes the exact sum away again: what is left is zero, or shows what
was lost, to 16 units of a sum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from qbench.errors import first_names
from qbench.quant import target as cpus
from qbench.quant.pytorch import older_kernels
from qbench.quant.pytorch.packed_layers import LayerKernel, find_rounded, layers, scales, with_levels
from qbench.quant.saturation import pair_sums
from qbench.record.schema import TargetFacts
from qbench.torch_private import make_per_channel_quantized_tensor, make_per_tensor_quantized_tensor

TOP = 255  # the largest level of an activation
# A pair that does not fit loses TOP at least where its weights sum to 129, less what fits: 255 * 129 - 32767 = 128.
_STEP, _MOST_OFF, _ZERO = 8.0, 8, 128  # units of a sum in a level; levels that rounding a large bias may cost
_SHOWN = 3  # names in a note
_LEAST_OUT = 12  # the side of the output of a transposed convolution that is asked
_WIDER = 2 ** (1 / 8)  # by which the step of an overflowing channel grows at a time
_LEAST = 1.005  # where rounding alone makes a pair too large
_ROOM = pair_sums.HIGHEST - TOP / 2  # two rounded weights are up to one larger together, half of it as a rule
_WIDEST = 4.0  # with it no four weights of one sign exceed 128: what overflows then is no sum of 16 bits


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """Whose sums must hold: those of the process's engine here; where ``target`` names CPUs without VNNI, those of
    ``engine`` there, too. ``top``: the largest level of an activation."""

    engine: str = ""
    target: tuple[str, ...] = ()
    top: int = TOP

    def overflow(self, kernel: LayerKernel, levels: Any) -> Any:
        """Of each output channel whether a sum of some of them can overflow, as a tensor of bool."""
        if not cpus.adds_in_16_bits(self.target):
            return overflows(kernel, levels, top=self.top)
        known = older_kernels.overflowing(self.engine, kernel, levels, top=self.top, target=self.target)
        if bool(known.all()) or (kernel.kind == "conv_transpose" and bool(known.any())):  # which has one step
            return known
        over = known | overflows(kernel, levels, top=self.top)
        if self.engine == "x86":  # its depthwise layers run on fbgemm there, whose kernels for them are those of here
            with older_kernels.process_engine("fbgemm"):
                over = over | overflows(kernel, levels, top=self.top)
        return over

    def widen(self, kernel: LayerKernel, levels: Any) -> Any:
        """By how much the step of each output channel that overflows grows at a time, more than 1: as much as its
        largest pair needs where the order of the sums is known."""
        wider = torch.full((kernel.channels_out(levels),), _WIDER, dtype=torch.double)
        if not cpus.adds_in_16_bits(self.target):
            return wider
        largest = older_kernels.largest_pairs(self.engine, kernel, levels, target=self.target).double()
        return torch.where(
            largest * self.top > pair_sums.HIGHEST, (largest * self.top / _ROOM).clamp_min(_LEAST), wider
        )


HERE = Kernels()


@dataclass(kw_only=True)
class Sums:
    """What was asked of the layers of a network: ``layers`` were asked, of ``overflowing`` (names) the sums could leave
    16 bits, of ``left`` they still can; ``channels`` of their ``of_channels`` channels got a wider step."""

    layers: int = 0
    overflowing: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    channels: int = 0
    of_channels: int = 0


def hold(int8: Any, floats: Mapping[str, Any], *, narrow: bool, kernels: Kernels = HERE) -> Sums:
    """Asks every layer of a converted module; with ``narrow`` the channels of weights whose sums could overflow get a
    step that is as much wider as they need, rounded from ``floats`` (layer -> its float weight) where they are known.

    The process's engine must be that of the module.
    """
    sums = Sums()
    for layer in layers(int8):
        weight = layer.weight
        narrowed = ask(sums, kernels, layer.name, layer.kernel, weight, layer.find_float(floats), narrow=narrow)
        if narrowed is not weight:
            layer.exchange(narrowed, layer.bias)
    return sums


def ask(
    sums: Sums, kernels: Kernels, name: str, kernel: LayerKernel, weight: Any, float_weight: Any, *, narrow: bool
) -> Any:
    """The quantized weight of one layer, as it is or with wider steps; counts it in ``sums``."""
    sums.layers += 1
    bad = kernels.overflow(kernel, weight.int_repr())
    if not bool(bad.any()):
        return weight
    sums.overflowing.append(name)
    sums.of_channels += len(bad)
    narrowed = fitted(kernel, weight, _source(weight, float_weight), kernels) if narrow else None
    if narrowed is None or narrowed.overflows:
        sums.left.append(name)
        return weight
    sums.channels += narrowed.channels
    return narrowed.weight


def note(sums: Sums, engine: str, *, narrow: bool, target: Collection[str] = ()) -> str | None:
    """Which layers' sums could overflow, here or on the CPUs of ``target``, and what was done about it; None where none
    could."""
    names = sums.overflowing
    if not names:
        return None
    on = f" on {older}" if (older := cpus.name_cpus(target, cpus.ADD_IN_16_BITS)) else ""
    layers = f"{len(names)} of {sums.layers} layers ({first_names(names, _SHOWN)})"
    text = f"{engine} adds products in 16 bits{on} in {layers}"
    if not narrow:
        return f"{text}, which activations and weights of 8 bits may overflow; narrow_weights: true avoids it"
    exceptions = f" but in {first_names(sums.left, _SHOWN)}" if sums.left else ""
    return (
        f"{text}: {sums.channels} of the {sums.of_channels} channels of their weights have a wider step, with which "
        f"no sum overflows{exceptions}"
    )


def facts(sums: Sums, target: Collection[str]) -> TargetFacts | None:
    """What a record says of the CPUs of a target; None where it names none."""
    if not target:
        return None
    return TargetFacts(
        cpus=tuple(target),
        layers=sums.layers,
        layers_narrowed=0 if not sums.channels else len(sums.overflowing) - len(sums.left),
        channels_narrowed=sums.channels,
        overflowing=tuple(sums.left),
    )


def overflows(kernel: LayerKernel, levels: Any, *, top: int = TOP) -> Any:
    """Of each output channel whether a sum can overflow in the process's engine, as a tensor of bool; ``levels`` are
    the integers of its weight."""
    over = torch.zeros(kernel.channels_out(levels), dtype=torch.bool)
    shape = (1, kernel.channels_in(levels), *_size(kernel, levels))
    x = make_per_tensor_quantized_tensor(torch.full(shape, top, dtype=torch.uint8), 1.0, 0)
    x = x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x
    for some in (levels.clamp_min(0), levels.clamp_max(0)):
        weight = _unscaled(kernel, some)
        for sums, spot in _places(kernel, some, x):
            result = kernel.call(kernel.pack(weight, (-sums).float()), x, _STEP, _ZERO).int_repr()
            over |= (result[(0, slice(None), *spot)].int() - _ZERO).abs() > _MOST_OFF
    return over


@dataclass(frozen=True, kw_only=True)
class NarrowedWeight:
    """A quantized weight, in how many channels its step is wider, and whether sums of some still overflow."""

    weight: Any
    channels: int
    overflows: bool


def fitted(kernel: LayerKernel, weight: Any, source: Any, kernels: Kernels = HERE) -> NarrowedWeight:
    """A quantized weight with the least wider steps with which no sum of ``kernels`` overflows; ``source`` is the float
    weight that it rounds."""
    axis, scale = scales(weight)
    factors = torch.ones_like(scale)
    levels = weight.int_repr()
    while bool((bad := kernels.overflow(kernel, levels)).any()):
        wider = bad if len(factors) > 1 or len(bad) == 1 else torch.ones(1, dtype=torch.bool)
        if bool((factors[wider] >= _WIDEST).any()):
            return NarrowedWeight(weight=weight, channels=0, overflows=True)
        steps = kernels.widen(kernel, levels)
        factors[wider] *= steps[wider] if len(factors) > 1 or len(bad) == 1 else steps[bad].max()
        levels = _rounded(source, levels, scale * factors, axis, factors > 1)
    return NarrowedWeight(
        weight=with_levels(levels, weight, scale * factors), channels=_changed(factors, bad), overflows=False
    )


def _changed(factors: Any, channels: Any) -> int:
    """How many channels have a wider step: all, where they have one together."""
    return int((factors > 1).sum()) if len(factors) > 1 else len(channels) * int(factors[0] > 1)


def _rounded(source: Any, levels: Any, scale: Any, axis: int, which: Any) -> Any:
    """The integers of a float weight at other scales, in those channels."""
    shape = [-1 if i == axis else 1 for i in range(source.dim())]
    rounded = (source / scale.to(source.dtype).reshape(shape)).round().clamp(-128, 127).to(torch.int8)
    return torch.where(which.reshape(shape), rounded, levels)


def _source(weight: Any, float_weight: Any) -> Any:
    """The float weight that a quantized one was rounded from: the known one where rounding it gives these integers,
    else what they stand for."""
    source = find_rounded(weight, float_weight)
    return weight.dequantize() if source is None else source


def _unscaled(kernel: LayerKernel, levels: Any) -> Any:
    """The weight with all scales one: for each channel where engines have such kernels."""
    if kernel.kind == "conv_transpose":
        return make_per_tensor_quantized_tensor(levels, 1.0, 0)
    count = len(levels)
    ones, zeros = torch.ones(count, dtype=torch.double), torch.zeros(count, dtype=torch.long)
    return make_per_channel_quantized_tensor(levels, ones, zeros, 0)


def _size(kernel: LayerKernel, levels: Any) -> list[int]:
    """The least input with a place of the output that reads no padding, and some more of both; of a transposed
    convolution no more than gives places in the middle that read all they can: its output is as many times as large as
    its stride."""
    sides = zip(levels.shape[2:], kernel.dilation, kernel.stride, strict=True)
    extents = [((side - 1) * dilation + 1, stride) for side, dilation, stride in sides]
    sizes = [extent + 2 * stride for extent, stride in extents]
    if kernel.kind != "conv_transpose":
        return sizes
    reach = zip(extents, kernel.output_padding, strict=True)
    middles = [
        max(2 + math.ceil((extent + more - 1) / stride), math.ceil(_LEAST_OUT / stride))
        for (extent, stride), more in reach
    ]
    return [min(size, middle) for size, middle in zip(sizes, middles, strict=True)]


def _places(kernel: LayerKernel, levels: Any, x: Any) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """(exact sum of each channel, place of the output) for every sum of other weights that the kernel makes."""
    if kernel.kind != "conv_transpose":
        sides = zip(kernel.padding, kernel.stride, strict=True)
        top = float(x.dequantize().flatten()[0])
        sums = levels.reshape(len(levels), -1).sum(dim=1, dtype=torch.double) * top
        yield sums, tuple(math.ceil(padding / stride) for padding, stride in sides)
        return
    # Behind a transposed convolution as many places as its stride has steps read other weights.
    exact = kernel.exact(x.dequantize().double(), levels.double())[0]
    starts = [max(0, (size - stride) // 2) for size, stride in zip(exact.shape[1:], kernel.stride, strict=True)]
    steps = (range(start, start + stride) for start, stride in zip(starts, kernel.stride, strict=True))
    for spot in itertools.product(*steps):
        if all(at < size for at, size in zip(spot, exact.shape[1:], strict=True)):
            yield exact[(slice(None), *spot)], spot
