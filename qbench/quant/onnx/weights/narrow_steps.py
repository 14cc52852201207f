"""Steps of weights so wide that no sum of two products leaves 16 bits, whoever multiplies.

Two products of a byte from 0 to 255 fit into 16 bits signed while their weights sum to at most 128 (32767 / 255).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import ADA
from qbench.quant.onnx.sites import Record, Scales, Sites, WeightSite, channel_axis

Array = NDArray[Any]
LARGEST_PAIR = 128
_BLOCK = 2**17  # weights whose pairs are looked for at once: in float64, with copies, they take ten times their room


def narrow_steps(graph: Graph, sites: Sites, record: Record, *, unrounded: bool = False) -> dict[str, Scales]:
    """The record with wider steps for weights, so that no two of a channel that are multiplied side by side can
    overflow 16 bits. ``unrounded``: AdaRound is still to choose which of its weights go up and which down, so there is
    room for both going up."""
    narrow = dict(record)
    for site in sites.weights:
        integers = narrow[site.layer]
        scales = np.asarray(integers.scale_w)
        adaptive = unrounded and site.params.algorithm == ADA
        factors = _factors(graph.node(site.layer), np.asarray(graph.constant(site.tensor)), scales, site, adaptive)
        narrow[site.layer] = replace(integers, scale_w=tuple(map(float, scales * factors)))
    return narrow


def _factors(node: Any, weight: Array, scales: Array, site: WeightSite, adaptive: bool) -> Array:
    """By how much each scale of a weight must grow, at least 1; ``adaptive``: each may be rounded either way. A
    depthwise layer with one output channel for each input adds no pairs."""
    rows = np.moveaxis(weight, channel_axis(node), 0)
    if node.op_type == "Conv" and _depthwise(node, rows):
        return np.ones_like(scales)
    scale_of = np.broadcast_to(scales, len(rows))
    each = max(1, _BLOCK * len(rows) // max(1, rows.size))
    blocks = [slice(start, start + each) for start in range(0, len(rows), each)]
    pairs = [_find_pairs(node, rows[block], scale_of[block], adaptive) for block in blocks]
    largest, rounded = map(np.concatenate, zip(*pairs, strict=True))
    if site.axis is None:
        largest, rounded = largest.max(keepdims=True), rounded.max(keepdims=True)
    # Rounding to nearest adds up to half a step to each of the two. AdaRound adds less than a whole one, and the two
    # are whole numbers of steps together: 129 is not reached.
    return np.where(rounded > LARGEST_PAIR, np.maximum(largest / (LARGEST_PAIR - 1), 1.0), 1.0)


def _find_pairs(node: Any, rows: Array, scales: Array, adaptive: bool) -> tuple[Array, Array]:
    """Of each of these output channels the largest pair, in steps as they are and in whole ones."""
    steps = rows / scales.reshape(-1, *[1] * (rows.ndim - 1))
    levels = np.copysign(np.ceil(np.abs(steps)), steps) if adaptive else np.rint(steps)
    return _largest_pairs(node, steps), _largest_pairs(node, levels)


def _largest_pairs(node: Any, steps: Array) -> Array:
    """Of each output channel the largest sum of two weights of one sign that a kernel pairs.

    ONNX Runtime goes through the rows, the columns and the channels of a window, OpenVINO fills up the channels of each
    place to an even number (``quant.saturation``): whoever reads the file, its sums hold. In a transposed convolution,
    whose order was not tried, any two may meet at a place.
    """
    if node.op_type == "ConvTranspose":
        return _largest_of_two(steps.reshape(len(steps), steps.shape[1], -1))
    by_place = np.moveaxis(steps.reshape(len(steps), steps.shape[1], -1), 1, 2)
    filled = np.pad(by_place, ((0, 0), (0, 0), (0, steps.shape[1] % 2)))
    largest: Array = np.maximum(*(_largest_of_pairs(order.reshape(len(steps), -1)) for order in (by_place, filled)))
    return largest


def _depthwise(node: Any, rows: Array) -> bool:
    """Whether each output channel reads one input channel, and each input channel has one output channel."""
    groups = next((int(attr.i) for attr in node.attribute if attr.name == "group"), 1)
    return rows.shape[1] == 1 and groups == len(rows)


def _largest_of_pairs(steps: Array) -> Array:
    """Of each channel the largest sum of two weights of one sign that stand beside each other: [channels, weights]."""
    even = np.pad(steps, ((0, 0), (0, steps.shape[1] % 2)))
    first, second = even[:, 0::2], even[:, 1::2]
    sums: Array = np.where((first > 0) == (second > 0), np.abs(first + second), 0).max(axis=1)
    return sums


def _largest_of_two(steps: Array) -> Array:
    """Of each channel the largest sum of two weights of one sign at one place: [channels, neighbours, places]."""
    sides = [np.sort(np.maximum(sign * steps, 0), axis=1)[:, -2:].sum(axis=1).max(axis=1) for sign in (1, -1)]
    largest: Array = np.maximum(*sides)
    return largest
