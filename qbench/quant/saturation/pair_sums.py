"""Sums of two neighbouring products that leave 16 bits: which can from the weights alone, and which do for an input.

x86 without VNNI multiplies unsigned by signed bytes and adds each product to its neighbour in 16 bits, where the sum
stops at -32768 or 32767 (``vpmaddubsw``); the rest of a dot product is exact in 32 bits. So a kernel's result is the
exact one less what its pairs lost, and only a pair of two weights of one sign that sum to more than 128 can lose any:
255 * 128 fits. Such pairs are rare, and only they are computed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# How the products of one output are paired. Both go through the kernel's rows, then its columns, then the channels.
# flat: neighbours in that order, so that a pair may belong to two places of the kernel; even: within one place, whose
# channels are filled up with a zero where they are odd.
Pairing = Literal["flat", "even"]
TOP = 255  # the largest unsigned byte
HIGHEST, LOWEST = 32767, -32768
_BLOCK = 1 << 17  # sums computed at a time: they stay in the processor's cache


@dataclass(frozen=True, kw_only=True)
class PairedProduct:
    """A matrix product or a convolution of unsigned bytes with constant signed ones.

    ``weight``: [outputs, channels of a group, *kernel]. ``pads``: (before, after) of each axis, filled with the byte
    ``zero_point``. ``top``: the largest byte that its input has.
    """

    weight: Array
    pairing: Pairing
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    pads: tuple[tuple[int, int], ...] = ()
    groups: int = 1
    zero_point: int = 0
    top: int = TOP

    @property
    def kernel(self) -> tuple[int, ...]:
        """The sizes of the kernel; none of a matrix product."""
        return self.weight.shape[2:]

    @property
    def channels(self) -> int:
        """The channels of its input."""
        return int(self.weight.shape[1]) * self.groups

    @property
    def pairs_per_output(self) -> int:
        """How many sums of 16 bits one output takes."""
        inputs, places = int(self.weight.shape[1]), math.prod(self.kernel)
        return (inputs * places + 1) // 2 if self.pairing == "flat" else (inputs + 1) // 2 * places


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Pairs of weights of one sign whose sum can leave 16 bits, one entry each: the ``output`` that they belong to, the
    input channel and the place in the kernel of both, the amounts of both, and the ``sign``."""

    output: Array
    channels: Array  # [2, pairs]
    places: Array  # [2, pairs]
    amounts: Array  # [2, pairs], uint16
    sign: Array

    def __len__(self) -> int:
        return len(self.output)

    def select(self, which: Array) -> Pairs:
        """Some of them."""
        return Pairs(
            output=self.output[which],
            channels=self.channels[:, which],
            places=self.places[:, which],
            amounts=self.amounts[:, which],
            sign=self.sign[which],
        )

    @property
    def limits(self) -> Array:
        """The largest amount of each sum."""
        return np.where(self.sign > 0, HIGHEST, abs(LOWEST)).astype(np.uint16)


@dataclass(frozen=True, kw_only=True)
class Lost:
    """What sums of one input lost: of each output that lost any its ``channel``, its ``place`` (examples first), and
    the exact sum less the one that is kept; how many sums were ``saturated``, and the ``largest`` loss of one."""

    channel: Array
    place: Array
    amount: Array
    saturated: int
    largest: int


def find_pairs(product: PairedProduct) -> Pairs:
    """The pairs whose sum can leave 16 bits, from the weights and the largest input alone; none proves that all of the
    product's sums are exact."""
    rows, channel, place = _in_order(product)
    first, second = rows[:, 0::2], rows[:, 1::2]
    sums = (first + second) * product.top  # of two signs they fit
    output, pair = np.nonzero((sums > HIGHEST) | (sums < LOWEST))
    both = np.stack([2 * pair, 2 * pair + 1])
    base = output // (len(rows) // product.groups) * product.weight.shape[1]
    return Pairs(
        output=output,
        channels=channel[both] + base,
        places=place[both],
        amounts=np.abs(rows[output, both]).astype(np.uint16),
        sign=np.sign(first[output, pair]),
    )


def _in_order(product: PairedProduct) -> tuple[Array, Array, Array]:
    """The weights of each output in the order of the kernel's sums (int32, an even number of them), and the channel in
    its group and the place in the kernel of each."""
    outputs, inputs = product.weight.shape[:2]
    rows: Array = np.moveaxis(product.weight.reshape(outputs, inputs, -1), 1, 2).astype(np.int32)
    if product.pairing == "even" and inputs % 2:
        rows = np.pad(rows, ((0, 0), (0, 0), (0, 1)))
    place, channel = (axis.reshape(-1) for axis in np.indices(rows.shape[1:]))
    rows = rows.reshape(outputs, -1)
    odd = rows.shape[1] % 2
    return np.pad(rows, ((0, 0), (0, odd))), np.pad(channel, (0, odd)), np.pad(place, (0, odd))


def find_lost(product: PairedProduct, pairs: Pairs, x: Array) -> Lost:
    """What the sums of a product lose on ``x``, bytes of [examples, channels, *sizes] or [rows, inputs]."""
    reached = x.max(axis=(0, *range(2, x.ndim))) if x.size else np.zeros(product.channels, np.uint8)
    reached = np.maximum(reached, product.zero_point)  # what stands around it
    most = (reached[pairs.channels].astype(np.int32) * pairs.amounts).sum(axis=0)
    pairs = pairs.select(np.flatnonzero(most > pairs.limits))
    if not len(pairs):
        return _merged(np.zeros(0, np.int64), np.zeros(0, np.int32), 1)
    inputs, rows = _rows(product, pairs, x)
    keys, amounts = zip(*_lost_in_blocks(pairs, inputs, rows), strict=True)
    return _merged(np.concatenate(keys), np.concatenate(amounts), inputs.shape[1])


def _merged(keys: Array, amounts: Array, places: int) -> Lost:
    """Losses of sums as losses of outputs; ``keys`` are channels times ``places`` and the place."""
    order = np.argsort(keys, kind="stable")  # of a few long runs
    keys = keys[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    total = np.add.reduceat(amounts[order], starts) if len(keys) else amounts
    channel, place = np.divmod(keys[starts], places)
    largest = int(np.abs(amounts).max(initial=0))
    return Lost(channel=channel, place=place, amount=total, saturated=len(keys), largest=largest)


def _rows(product: PairedProduct, pairs: Pairs, x: Array) -> tuple[Array, Array]:
    """The bytes that pairs read: [inputs, places of the output] as uint16, and which of them each pair reads."""
    keys, rows = np.unique(pairs.places * product.channels + pairs.channels, return_inverse=True)
    padded = pad(product, x)
    parts = []
    for place, of_place in itertools.groupby(keys.tolist(), key=lambda key: key // product.channels):
        channels = [key - place * product.channels for key in of_place]
        view = np.moveaxis(padded[(slice(None), slice(None), *_window(product, padded, place))], 1, -1)
        parts.append(view[..., channels].reshape(-1, len(channels)).T.astype(np.uint16))
    return np.ascontiguousarray(np.concatenate(parts)), rows.reshape(2, -1)


def pad(product: PairedProduct, x: Array) -> Array:
    """The input with what stands around it."""
    if not any(itertools.chain(*product.pads)):
        return x
    return np.pad(x, ((0, 0), (0, 0), *product.pads), constant_values=product.zero_point)


def _window(product: PairedProduct, padded: Array, place: int) -> tuple[slice, ...]:
    """What one place of the kernel reads of a padded input."""
    if not product.kernel:
        return ()
    slices = []
    for axis, at in enumerate(np.unravel_index(place, product.kernel)):
        start = int(at) * product.dilation[axis]
        last = padded.shape[2 + axis] - (product.kernel[axis] - 1) * product.dilation[axis] + start
        slices.append(slice(start, last, product.stride[axis]))
    return tuple(slices)


def _lost_in_blocks(pairs: Pairs, inputs: Array, rows: Array) -> Iterator[tuple[Array, Array]]:
    """(channel and place as one key, loss) of the sums that leave 16 bits, some pairs and places at a time."""
    limits, places = pairs.limits, inputs.shape[1]
    several = min(places, _BLOCK // 16)
    step = max(1, _BLOCK // several)
    for start, i in itertools.product(range(0, places, several), range(0, len(pairs), step)):
        some, part = slice(i, i + step), inputs[:, start : start + several]
        sums, other = part[rows[0, some]], part[rows[1, some]]
        sums *= pairs.amounts[0, some, None]
        other *= pairs.amounts[1, some, None]
        sums += other  # two products of at most 255 * 128 fit into 16 bits without a sign
        hits = np.flatnonzero(sums > limits[some, None])
        pair, place = np.divmod(hits, part.shape[1])
        pair += i
        amount = sums.reshape(-1)[hits].astype(np.int32) - limits[pair]
        yield pairs.output[pair] * places + start + place, amount * pairs.sign[pair]


def exact_sums(product: PairedProduct, weight: Array, x: Array, zero: int, place: Array, output: Array) -> Array:
    """The exact sums of some outputs: bytes less their zero point times ``weight``, the product's less its own."""
    padded = np.moveaxis(pad(product, x), 1, -1)
    sizes = _sizes(product, padded)
    example, *at = np.unravel_index(place, (len(x), *sizes))
    group = output // (len(weight) // product.groups)
    inputs = int(weight.shape[1])
    rows = weight.reshape(len(weight), inputs, -1)
    sums = np.zeros(len(place), np.int32)
    for tap in range(rows.shape[2]):
        steps = np.unravel_index(tap, product.kernel) if product.kernel else ()
        index = [
            axis * stride + int(step) * dilation
            for axis, step, stride, dilation in zip(at, steps, product.stride, product.dilation, strict=True)
        ]
        read = padded[(example, *index)]
        if product.groups > 1:
            read = np.take_along_axis(read, group[:, None] * inputs + np.arange(inputs), axis=1)
        sums += np.einsum("ni,ni->n", read.astype(np.int32) - zero, rows[output, :, tap])
    return sums


def _sizes(product: PairedProduct, padded: Array) -> tuple[int, ...]:
    """The sizes of the output behind its channels, for a padded input with its channels last."""
    sides = zip(padded.shape[1:-1], product.kernel, product.dilation, product.stride, strict=True)
    return tuple((size - (kernel - 1) * dilation - 1) // stride + 1 for size, kernel, dilation, stride in sides)
