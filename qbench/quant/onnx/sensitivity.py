"""How much each layer alone disturbs the outputs when it is quantized: 0.5 + 0.5 cosine, as AMCT ranks layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.calibration.batches import Feed
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.graph import equivalence
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import ActivationSite, Record, Sites

Array = NDArray[Any]


def outputs(graph: Graph, feeds: Iterable[Feed]) -> list[tuple[Any, ...]]:
    """All outputs of the graph, batch by batch."""
    session = equivalence.open_graph(graph, threads=0, optimized=True)
    return [tuple(session.run(None, feed)) for feed in feeds]


def of_layer(
    graph: Graph, sites: Sites, record: Record, layer: str, feeds: Sequence[Feed], expected: Sequence[tuple[Any, ...]]
) -> float:
    """The mean similarity, over batches and float outputs, of the graph with this one layer quantized (its weight and
    its input) and the float graph, whose outputs are ``expected``. 1: no difference."""
    quantized = outputs(fake_quant(graph, *alone(sites, record, layer)), feeds)
    pairs = [pair for ours, theirs in zip(expected, quantized, strict=True) for pair in zip(ours, theirs, strict=True)]
    floats = [similarity(our, other) for our, other in pairs if np.asarray(our).dtype.kind == "f"]
    return float(np.mean(floats)) if floats else 1.0


def alone(sites: Sites, record: Record, layer: str) -> tuple[Sites, Record]:
    """What is left of sites and record when only one layer is quantized."""
    weights = tuple(site for site in sites.weights if site.layer == layer)
    activations = tuple(
        ActivationSite(tensor=site.tensor, keys={layer: site.keys[layer]}, params=site.params)
        for site in sites.activations
        if layer in site.keys
    )
    return Sites(weights=weights, activations=activations), {layer: record[layer]}


def similarity(our: Array, other: Array) -> float:
    """0.5 + 0.5 cos of the angle between two tensors of one shape, 0 to 1; of two that are all zero 1, of one that is
    0.5, and 0 where values are not finite."""
    a, b = np.asarray(our, np.float64).ravel(), np.asarray(other, np.float64).ravel()
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return 0.0
    lengths = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    if not all(lengths):
        return 0.5 if any(lengths) else 1.0
    cosine = float(np.clip((a / lengths[0]) @ (b / lengths[1]), -1, 1))
    return 0.5 + 0.5 * cosine
