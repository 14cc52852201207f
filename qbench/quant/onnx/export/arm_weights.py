"""Weights of a deploy model for ONNX Runtime on ARM, whose kernels add two products of signed bytes in 16 bits.

Two products of -128 and -128 are the only ones that do not fit: 32768. Unsigned inputs are shifted first, so that a 0,
the most frequent input behind a ReLU, is such a -128. ONNX Runtime 1.32 then loses 65536 of the sum: in depthwise
layers on every ARM CPU, in all others on those without products of bytes (asimddp; issue 31573 of microsoft/onnxruntime
tells of MatMul). Seen on emulated CPUs by tests/benchmarks/arm_kernels.py, where weights from -127 are always exact.
Which two weights meet depends on the kernel, so a channel with two of -128 gets a wider step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qbench.quant.onnx.export.narrow_weights import Array, Fitted
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Record, Sites, channel_axis

_LEAST = -128
_ROUNDS_UP = 127.49  # the largest magnitude, in steps, that is rounded to 127, with room for float32


def widen_for_arm(graph: Graph, sites: Sites, fitted: Fitted, original: Record) -> Fitted:
    """The same bytes, with wider steps for the channels of weights that have two or more of -128; ``original``: the
    steps before any was widened, against which channels are counted."""
    record, widened = dict(fitted.record), dict[str, int]()
    for site in sites.weights:
        steps = np.asarray(record[site.layer].scale_w)
        rows = np.moveaxis(np.asarray(graph.constant(site.tensor)), channel_axis(graph.node(site.layer)), 0)
        factors = _find_factors(rows.reshape(len(rows), -1) / steps.reshape(-1, 1), shared=site.axis is None)
        wider = steps * factors
        if (factors > 1).any():
            record[site.layer] = replace(record[site.layer], scale_w=tuple(map(float, wider)))
        widened[site.layer] = int((wider > np.asarray(original[site.layer].scale_w)).sum())
    channels = sum(len(original[site.layer].scale_w) for site in sites.weights)
    return replace(fitted, record=record, widened=widened, channels=channels)


def _find_factors(steps: Array, *, shared: bool) -> Array:
    """By how much the scale of each channel must grow, at least 1, for weights in steps: [channels, weights]."""
    least = (np.rint(steps) <= _LEAST).sum(axis=1)
    factors: Array = np.where(least > 1, np.maximum(-steps.min(axis=1, initial=0.0) / _ROUNDS_UP, 1.0), 1.0)
    return factors.max(keepdims=True) if shared else factors
