"""Whether balance helps a layer: the error of its outputs with and without, on data that its range was not made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant import affine
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.sites import WeightSite
from qbench.quant.onnx.weights import input_samples
from qbench.quant.scale_rules import amct_qparams

Array = NDArray[Any]


def error(graph: Graph, site: WeightSite, rows: Array, f: Array, largest: Array) -> float:
    """The mean squared error of a layer's outputs as a share of their mean square, both quantized to 8 bits.

    ``rows``: what single outputs are computed from, as ``InputSamples`` gives them, of one part of the data;
    ``largest``: max|X_c| of each input channel in the other part, from which the range of the activation follows;
    ``f``: the factor of each input channel, ones for no balance.
    """
    node = graph.node(site.layer)
    weight = graph.constant(site.tensor)
    assert weight is not None, site.tensor
    kernels = input_samples.arrange(node, weight).astype(np.float64)
    by = _spread_factors(node, kernels.shape, f)
    top = float((largest / f).max())
    params = amct_qparams(-top if rows.min(initial=0.0) < 0 else 0.0, top)
    divided = affine.fake_quantize(rows / by[:, None], params.scale, params.zero_point)
    scaled = kernels * by[:, None]
    scale = np.abs(scaled).max(axis=(0, 1, 2) if site.axis is None else 2, keepdims=True) / affine.HIGH
    rounded = affine.fake_quantize(scaled, np.where(scale > 0, scale, 1.0))
    expected = rows @ kernels.swapaxes(1, 2)
    energy = float(np.square(expected).mean())
    return float(np.square(divided @ rounded.swapaxes(1, 2) - expected).mean()) / energy if energy else 0.0


def _spread_factors(node: Any, shape: tuple[int, ...], f: Array) -> Array:
    """The factors of a row's inputs, (groups, inputs): each channel's for all places of its kernel."""
    groups = int(attribute(node, "group", 1)) if node.op_type in ("Conv", "ConvTranspose") else 1
    split = f.astype(np.float64).reshape(groups, -1)
    factors_of_row: Array = np.repeat(split, shape[2] // split.shape[1], axis=1)
    return factors_of_row
