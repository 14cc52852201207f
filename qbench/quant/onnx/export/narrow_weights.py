"""Weights of a deploy model for a CPU that adds products of bytes in 16 bits: room for every sum of two products.

x86 kernels multiply unsigned by signed bytes and add neighbours in pairs; without VNNI the sum has 16 bits and stops at
32767. Unsigned weights are exact, and slow: ONNX Runtime then adds in 32 bits, and OpenVINO computes in float (one
thread, AVX2: ResNet-18 39 ms against 28, EfficientNet-Lite0 15.0 against 10.7, fp32 15.3; with AMX Lite0 takes 2.3
times as long, 1.7 times with signed activations). So weights stay signed, and the channels of which a pair could
overflow get a wider step: as fast, exact, and on EfficientNet-Lite0 20.4 dB instead of 20.7 (mean SQNR of the logits of
200 photos; overflowing: 12.7; tests/benchmarks/target_cost.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from qbench.errors import UsageError
from qbench.quant.onnx.export import deploy_onnxruntime
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Record, Sites, channel_axis
from qbench.quant.onnx.weights.narrow_steps import narrow_steps

Array = NDArray[Any]
# A form of bytes; in the narrowed one signed weights leave room for sums of 16 bits.
Choice = Literal["U8S8", "U8S8-narrow", "U8U8", "S8S8"]
CHOICES: tuple[Choice, ...] = get_args(Choice)
NARROW: Choice = "U8S8-narrow"
# ONNX Runtime on ARM adds two products of signed bytes in 16 bits. Two products of -128 and -128 are the only ones that
# do not fit: 32768. Unsigned inputs are shifted first, so that a 0, the most frequent input behind a ReLU, is such a
# -128. ONNX Runtime 1.32 then loses 65536 of the sum: in depthwise layers on every ARM CPU, in all others on those
# without products of bytes (asimddp; issue 31573 of microsoft/onnxruntime tells of MatMul). Seen on emulated CPUs by
# tests/benchmarks/arm_kernels.py, where weights from -127 are always exact. Which two weights meet depends on the
# kernel, so a channel with two of -128 gets a wider step.
_LEAST = -128
_ROUNDS_UP = 127.49  # the largest magnitude, in steps, that is rounded to 127, with room for float32


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """The bytes of a deploy model and the record that every model of it is made from; ``widened``: layer -> how many of
    the channels of its weight got a wider step, ``channels``: how many there are; None where weights stay as they are.
    """

    choice: Choice
    form: deploy_onnxruntime.Form
    record: Record
    widened: Mapping[str, int] | None = None
    channels: int = 0

    @property
    def narrowed(self) -> float | None:
        """The share of the channels of weights that got a wider step; None where weights stay as they are."""
        return None if self.widened is None else sum(self.widened.values()) / max(1, self.channels)


def fitted(
    graph: Graph, sites: Sites, record: Record, choice: str | None = None, *, original: Record | None = None
) -> Fitted:
    """What ONNX Runtime executes fast and exactly: in the form asked for, else in that for this machine. ``original``:
    the steps before any was widened, against which channels are counted (None: those of ``record``).

    Raises ``UsageError`` for a form that there is not.
    """
    if choice is None:
        own = deploy_onnxruntime.form_for()
        choice = NARROW if own == "U8U8" else own
    forms: Mapping[str, tuple[Choice, deploy_onnxruntime.Form]] = {
        "U8S8": ("U8S8", "U8S8"), NARROW: (NARROW, "U8S8"), "U8U8": ("U8U8", "U8U8"), "S8S8": ("S8S8", "S8S8"),
    }  # fmt: skip
    if choice not in forms:
        raise UsageError(f"no form named {choice!r}; available: {', '.join(CHOICES)}")
    name, form = forms[choice]
    if name != NARROW:
        return Fitted(choice=name, form=form, record=record)
    narrow = narrow_steps(graph, sites, record)
    widened, channels = count_wider(sites, narrow, original or record)
    return Fitted(choice=name, form=form, record=narrow, widened=widened, channels=channels)


def count_wider(sites: Sites, record: Record, original: Record) -> tuple[dict[str, int], int]:
    """By layer, how many channels of its weight have a wider step than in ``original``; and how many there are."""
    wider = {site.layer: np.greater(record[site.layer].scale_w, original[site.layer].scale_w) for site in sites.weights}
    return {layer: int(channels.sum()) for layer, channels in wider.items()}, sum(map(len, wider.values()))


def widen_for_arm(graph: Graph, sites: Sites, fitted: Fitted, original: Record) -> Fitted:
    """The same bytes, with wider steps for the channels of weights that have two or more of -128; ``original``: the
    steps before any was widened, against which channels are counted."""
    record = dict(fitted.record)
    for site in sites.weights:
        steps = np.asarray(record[site.layer].scale_w)
        rows = np.moveaxis(np.asarray(graph.constant(site.tensor)), channel_axis(graph.node(site.layer)), 0)
        factors = _find_arm_factors(rows.reshape(len(rows), -1) / steps.reshape(-1, 1), shared=site.axis is None)
        if (factors > 1).any():
            record[site.layer] = replace(record[site.layer], scale_w=tuple(map(float, steps * factors)))
    widened, channels = count_wider(sites, record, original)
    return replace(fitted, record=record, widened=widened, channels=channels)


def _find_arm_factors(steps: Array, *, shared: bool) -> Array:
    """By how much the scale of each channel must grow, at least 1, for weights in steps: [channels, weights]."""
    least = (np.rint(steps) <= _LEAST).sum(axis=1)
    factors: Array = np.where(least > 1, np.maximum(-steps.min(axis=1, initial=0.0) / _ROUNDS_UP, 1.0), 1.0)
    return factors.max(keepdims=True) if shared else factors
