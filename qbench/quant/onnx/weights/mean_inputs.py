"""What layers are given on average, and how far their rounded weights move the means of their outputs by it.

A layer is linear: the mean of what it gives with rounded weights is off by the rounding errors times its mean inputs,
whatever the steps of the weights, so that no pass over the data is needed once these are known. Taken off the biases it
costs nothing at run time. A MobileNetV3 with AVX2: 50.1 -> 55.8 dB on ONNX Runtime, 50.1 -> 55.9 on OpenVINO
(tests/benchmarks/by_hand.py mobilenet). Nagel et al. 2019 (Data-Free Quantization, section 4.2), with inputs that are
observed instead of derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.affine import fake_quantize
from qbench.quant.halves import shrink_mean
from qbench.quant.onnx.graph.graph import Graph, copy_message
from qbench.quant.onnx.sites import Record, Sites, WeightSite
from qbench.quant.onnx.weights import bias_correction, weight_scales
from qbench.quant.onnx.weights.input_samples import arrange, mean_row

Array = NDArray[Any]


@dataclass
class _Sums:
    """Of one layer: the node, the shape of its weight, and by half of the examples how many there were and the sum over
    them of what each weight is multiplied with."""

    node: Any
    shape: tuple[int, ...]
    counts: list[int] = field(default_factory=lambda: [0, 0])
    sums: list[Array | float] = field(default_factory=lambda: [0.0, 0.0])

    def add(self, x: Array) -> None:
        """Every other example goes to the same half, however the examples are cut into batches."""
        first = sum(self.counts)
        for half in (0, 1):
            own = x[(half + first) % 2 :: 2]
            if len(own):
                self.counts[half] += len(own)
                self.sums[half] += mean_row(self.node, self.shape, own) * len(own)


class MeanInputs:
    """The mean inputs of the layers of some sites that have, or can have, a bias. ``add`` takes values of tensors,
    examples along the first axis; a layer whose input is not among them is left out of ``means``. Nothing of the graph
    is kept, whose weights would stay in memory with it."""

    def __init__(self, graph: Graph, sites: Sites) -> None:
        self._layers = {
            site.layer: _Sums(node=copy_message(node), shape=tuple(np.asarray(graph.constant(site.tensor)).shape))
            for site in sites.weights
            if bias_correction.find_bias(graph, node := graph.node(site.layer)) is not None
        }

    def add(self, values: Mapping[str, Array]) -> None:
        """Takes a batch."""
        for layer in self._layers.values():
            x = values.get(layer.node.input[0])
            if x is not None and x.ndim >= 2:
                layer.add(x)

    def means(self) -> dict[str, Array]:
        """By layer, of each half of the examples (every other one), float32: (2, groups, inputs of a row), ordered as
        ``input_samples.arrange`` orders the weights. A layer that has seen fewer than two examples is left out."""
        return {
            name: np.stack(
                [np.asarray(total) / count for total, count in zip(layer.sums, layer.counts, strict=True)]
            ).astype(np.float32)
            for name, layer in self._layers.items()
            if all(layer.counts)
        }


def find_mean_errors(graph: Graph, sites: Sites, record: Record, means: Mapping[str, Array]) -> dict[str, Array]:
    """How far the rounded weights of a record move the mean of each output channel, by layer; of layers whose mean
    inputs are known (``means``) alone."""
    return {
        site.layer: errors
        for site in sites.weights
        if site.layer in means
        and (errors := _mean_error(graph, site, record[site.layer].scale_w, means[site.layer])).any()
    }


def _mean_error(graph: Graph, site: WeightSite, scales: tuple[float, ...], halves: Array) -> Array:
    """Shape (output channels,), float64; shrunk by how far both halves of the examples agree."""
    weight = graph.constant(site.tensor)
    assert weight is not None, site.tensor
    rounding = fake_quantize(weight, weight_scales.spread(scales, site.axis, weight.ndim)) - weight
    rows = arrange(graph.node(site.layer), rounding)
    of_halves = np.einsum("goi,hgi->hgo", rows, halves, dtype=np.float64).reshape(2, -1)
    return shrink_mean(*of_halves)
