"""What calibration found + what was known -> the record of a calibration model, complete."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qbench.errors import BuildError
from qbench.quant.onnx.calibration.calibration_model import CalibrationModel
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Record, Scales, Sites
from qbench.quant.onnx.weights import weight_scales
from qbench.quant.scale_rules import QParams


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
    with np.errstate(over="ignore"):  # the error says it
        rounded = float(np.float16(qparams.scale))
    if not 0 < rounded < math.inf:
        raise BuildError(f"{model.file}: a scale of {qparams.scale:g} is none in float16; leave FORCE_FP16_QUANT out")
    return rounded


def with_balance(record: Record, factors: Mapping[str, tuple[float, ...]]) -> dict[str, Scales]:
    """The record with the factors of each balanced layer's input channels."""
    keys = dict.fromkeys([*record, *factors])
    return {key: replace(record.get(key, Scales()), balance=factors.get(key, ())) for key in keys}


def as_written(record: Record) -> dict[str, Scales]:
    """The record in float32, as its files and the constants of int8 models hold it."""
    return {
        key: replace(
            scales,
            scale_d=None if scales.scale_d is None else float(np.float32(scales.scale_d)),
            scale_w=_in_float32(scales.scale_w),
            balance=_in_float32(scales.balance),
        )
        for key, scales in record.items()
    }


def _in_float32(values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(np.asarray(values, np.float32).tolist())
