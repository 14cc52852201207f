"""The int8 ONNX file that a runtime executes on this CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.uniform.files.record import Record
from qbench.quant.uniform.graph.graph import Graph
from qbench.quant.uniform.outputs import deploy_onnxruntime
from qbench.quant.uniform.sites import Sites, WeightSite

Array = NDArray[Any]
# Two products of a byte from 0 to 255 fit into 16 bits signed while their weights sum to at most this (32767 / 255).
LARGEST_PAIR = 128


def write(graph: Graph, sites: Sites, record: Record, file: Path) -> tuple[str, ...]:
    """Writes the QDQ file that ONNX Runtime and OpenVINO execute; what a reader must know of its form.

    Without VNNI the safe form with unsigned weights costs too much: ONNX Runtime adds their products in 32 bits (one
    thread, AVX2: ResNet-18 39 ms against 28 with signed ones, EfficientNet-Lite0 15.0 against 10.7, fp32 15.3), and
    OpenVINO runs them in float. So weights stay signed there, and those of a channel whose largest would overflow 16
    bits get a wider step: as fast, exact, and on EfficientNet-Lite0 17.4 dB instead of 18.5 (overflowing: 9).
    """
    form = deploy_onnxruntime.form_for()
    notes: tuple[str, ...] = ()
    if form == "U8U8":
        record, share = narrowed(graph, sites, record)
        form = "U8S8"
        notes = (f"no VNNI: {share:.0%} of the channels of weights use fewer than 8 bits, so that 16-bit sums hold",)
    deploy_onnxruntime.deploy(graph, sites, record, form=form).save(file)
    return notes


def narrowed(graph: Graph, sites: Sites, record: Record) -> tuple[Record, float]:
    """The record with wider steps for weights, so that no two of a channel that are multiplied side by side can
    overflow 16 bits, and the share of channels that needed one.

    Kernels add the products of neighbouring input channels in pairs. Which are neighbours is their affair, so the two
    largest of one sign at each place of the window count. A depthwise layer has one input channel, and no pairs.
    """
    made, widened, channels = dict(record), 0, 0
    for site in sites.weights:
        held = made[site.layer]
        factors = _factors(np.asarray(graph.constant(site.tensor)), np.asarray(held.scale_w), site)
        made[site.layer] = replace(held, scale_w=tuple(map(float, np.asarray(held.scale_w) * factors)))
        widened, channels = widened + int((factors > 1).sum()), channels + len(factors)
    return made, widened / max(1, channels)


def _factors(weight: Array, scales: Array, site: WeightSite) -> Array:
    """By how much each scale of a weight must grow, at least 1."""
    axis = 0 if site.axis is None else site.axis
    rows = np.moveaxis(weight, axis, 0)
    steps = rows / scales.reshape(-1, *[1] * (rows.ndim - 1))
    pairs = steps.reshape(len(steps), steps.shape[1], -1) if steps.ndim > 1 else steps.reshape(len(steps), 1, 1)
    if pairs.shape[1] < 2:
        return np.ones(len(scales))
    largest, rounded = (_largest_pairs(one) for one in (pairs, np.rint(pairs)))
    if site.axis is None:
        largest, rounded = largest.max(keepdims=True), rounded.max(keepdims=True)
    # Rounding adds up to half a step to each of the two.
    return np.where(rounded > LARGEST_PAIR, largest / (LARGEST_PAIR - 1), 1.0)


def _largest_pairs(steps: Array) -> Array:
    """Of each channel the largest sum of two weights of one sign at one place: [channels, neighbours, places]."""
    sides = [np.sort(np.maximum(sign * steps, 0), axis=1)[:, -2:].sum(axis=1).max(axis=1) for sign in (1, -1)]
    found: Array = np.maximum(*sides)
    return found
