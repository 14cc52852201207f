"""What calibration found + what was known -> the record of a calibration model, complete."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from qbench.errors import BuildError, UsageError
from qbench.quant.onnx.calibration.calibration_model import BALANCE, CalibrationModel
from qbench.quant.onnx.formats import scale_record as record_file
from qbench.quant.onnx.formats.scale_record import Record, Scales
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Sites
from qbench.quant.onnx.weights import weight_scales
from qbench.quant.scale_rules import QParams


def known(file: Path, model: CalibrationModel) -> Record:
    """The record as it is, empty where there is none yet; what the model itself knows of its weights goes before.
    Raises ``UsageError`` where the record belongs to another model."""
    own = dict(record_file.read(file, empty=True)) if file.exists() else {}  # nothing of it may have weights
    expected = keys(model.sites)
    if strangers := [key for key in own if key not in expected]:
        near = difflib.get_close_matches(strangers[0], expected, 1)
        advice = f"did you mean {near[0]!r}?" if near else "is it the record of another model? delete it, or"
        raise UsageError(
            f"{file}: {strangers[0]!r} is nothing that {model.file} quantizes; {advice} quantize the model again"
        )
    require_same_balance(own, model, file)
    for layer, scales in model.record.items():
        own[layer] = (
            replace(scales, scale_d=own[layer].scale_d, offset_d=own[layer].offset_d) if layer in own else scales
        )
    return own


def require_same_balance(record: Record, model: CalibrationModel, file: Path) -> None:
    """Raises ``UsageError`` where a record (``file``) has balance factors and the model's weights are not balanced: its
    scales are those of other weights."""
    balanced = [key for key, scales in record.items() if scales.balance]
    if balanced and BALANCE not in model.done:
        raise UsageError(
            f"{file}: {balanced[0]!r} has a tensor_balance_factor, but the weights of {model.file} are not balanced; "
            "quantize the model again for a record of its own, with balance in the configuration if it is wanted"
        )


def keys(sites: Sites) -> tuple[str, ...]:
    """The keys of a complete record, in the order of the graph."""
    every_key = dict.fromkeys(key for site in sites.activations for key in site.keys)
    return tuple(every_key | dict.fromkeys(site.layer for site in sites.weights))


def with_weights(record: Record, model: CalibrationModel, changed: Graph | None = None) -> dict[str, Scales]:
    """The record with scale_w of every layer: as held, or by the absolute maximum of its weights where there is none
    yet; of all layers by the weights of the graph ``changed``, where that is given."""
    completed, graph = dict(record), changed
    for site in model.sites.weights:
        scales = record.get(site.layer, Scales())
        if scales.scale_w and changed is None:
            continue
        graph = graph or model.graph()
        weight = graph.constant(site.tensor)
        assert weight is not None, site.tensor
        try:
            weight_scale = weight_scales.arq(weight, site.axis)
        except ValueError as error:
            raise BuildError(f"{site.layer}: {error}; correct the model, or skip this layer") from error
        completed[site.layer] = replace(scales, scale_w=weight_scale, offset_w=(0,) * len(weight_scale))
    return completed


def complete(record: Record, params: Mapping[str, QParams], model: CalibrationModel) -> dict[str, Scales]:
    """The record with the scales of the activations, its keys in the order of the graph; rounded to float16 where the
    configuration asks for it (AMCT's FORCE_FP16_QUANT)."""
    completed = {}
    for key in keys(model.sites):
        scales = record.get(key, Scales())
        qparams = params.get(key)
        completed[key] = (
            scales if qparams is None else replace(scales, scale_d=_scale(qparams, model), offset_d=qparams.zero_point)
        )
    return completed


def _scale(qparams: QParams, model: CalibrationModel) -> float:
    if not model.config.fp16_scales:
        return qparams.scale
    rounded = float(np.float16(qparams.scale))
    if not 0 < rounded < math.inf:
        raise BuildError(f"{model.file}: a scale of {qparams.scale:g} is none in float16; leave FORCE_FP16_QUANT out")
    return rounded


def with_balance(record: Record, factors: Mapping[str, tuple[float, ...]]) -> dict[str, Scales]:
    """The record with the factors of each balanced layer's input channels."""
    keys = dict.fromkeys([*record, *factors])
    return {key: replace(record.get(key, Scales()), balance=factors.get(key, ())) for key in keys}
