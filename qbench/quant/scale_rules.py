"""From a range to a scale and a zero point, by the rule of each tool: the same range gets another scale from another.

The ONNX flow and its calibrators use AMCT's rule (``amct_qparams``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qbench.errors import BuildError
from qbench.quant.affine import HIGH, LOW, QINT32, QUINT8, Dtype, find_dtype

Array = NDArray[Any]
# AMCT takes a smaller scale for that of a tensor that is all zeros (float32's epsilon): it becomes 1.
LEAST_SCALE = 1.1920929e-7


@dataclass(frozen=True, kw_only=True)
class QParams:
    """Of one range: x' = (Q - zero_point) * scale; ``scale`` is a float32, as a float."""

    scale: float
    zero_point: int


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelQParams:
    """Of one range per channel: arrays of float64 and int64."""

    scale: Array
    zero_point: Array


# (rule, dtype) -> the integers of a range: affine, symmetric, reduced to 7 bits.
_LEVELS: dict[tuple[str, str], tuple[tuple[int, int], tuple[int, int], tuple[int, int] | None]] = {
    ("torch", "quint8"): ((0, 255), (0, 255), (0, 127)),
    ("torch", "qint8"): ((-128, 127), (-128, 127), (-64, 63)),
    ("qnnpack", "qint8"): ((-128, 127), (-127, 127), None),
    ("onnxruntime", "quint8"): ((0, 255), (0, 255), (0, 127)),
    ("onnxruntime", "qint8"): ((-128, 127), (-127, 127), (-64, 64)),
    ("amct", "qint8"): ((-128, 127), (-128, 127), None),
}
RULES = tuple(dict.fromkeys(rule for rule, _ in _LEVELS))
_SMALLEST = {"torch": 2.0**-23, "qnnpack": 2.0**-12}  # 2**-23 = 1.19e-7, float32's epsilon


def qparams(
    low: ArrayLike,
    high: ArrayLike,
    dtype: Dtype | str,
    *,
    rule: str = "torch",
    symmetric: bool = False,
    reduce_range: bool = False,
) -> QParams | ChannelQParams:
    """The scale and zero point with which ``dtype`` covers the values ``low`` to ``high`` (numbers, or 1-D arrays with
    one range per channel), by the rule of a tool; zero is always in the range.

    - ``torch``: ``MinMaxObserver`` and its kin; symmetric |max| / 127.5;
    - ``qnnpack``: torch's symmetric QNNPACK qconfig, qint8 only; symmetric |max| / 127, no scale below 2**-12;
    - ``onnxruntime``: ``quant_utils.compute_scale_zp``; symmetric qint8 |max| / 127;
    - ``amct``: Huawei's AMCT, qint8 only; symmetric max / 127 or |min| / 128, the larger one; a scale below 1.19e-7
      becomes 1.

    ``reduce_range`` leaves one bit unused (torch and onnxruntime). Raises ``BuildError`` for a range that is empty, not
    finite or too wide for float32, and for what a rule does not have.
    """
    kind = find_dtype(dtype)
    bottom, top = _find_levels(rule, kind, symmetric=symmetric, reduce_range=reduce_range)
    least, most = _read_range(low, high)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if rule == "onnxruntime":
            scale, zero_point = _by_onnxruntime(least, most, bottom, top, symmetric=symmetric)
        elif rule == "amct":
            scale, zero_point = _by_amct(least.astype(np.float64), most.astype(np.float64), symmetric=symmetric)
        else:
            middle = 128 if kind is QUINT8 else 0
            eps = np.float32(_SMALLEST[rule])
            scale, zero_point = _by_torch(least, most, bottom, top, eps, middle if symmetric else None)
    if not np.isfinite(scale).all():
        raise BuildError("the range is too wide for a float32 scale; clip the outliers, or choose another calibrator")
    if scale.ndim == 0:
        return QParams(scale=float(scale), zero_point=int(zero_point))
    return ChannelQParams(scale=scale.astype(np.float64), zero_point=zero_point.astype(np.int64))


def amct_qparams(low: float, high: float, *, symmetric: bool = False) -> QParams:
    """What ``qparams`` gives by the rule ``amct``, for a calibrated range whose ends need not be float32; the zero
    point of a range of nothing is 0. Raises ``ValueError`` for inf and NaN."""
    for end in (low, high):
        if not math.isfinite(end):
            raise ValueError(f"a range that ends at {end} has no scale")
    least, most = np.asarray(min(low, 0.0)), np.asarray(max(high, 0.0))
    scale, zero_point = _by_amct(least, most, symmetric=symmetric)
    nothing = scale > most - least  # a scale is 1 / 255 to 1 / 127 of its range, but where that is nothing
    return QParams(scale=float(scale), zero_point=0 if nothing else int(zero_point))


def choose_amct_scales(low: Array, high: Array, *, symmetric: bool) -> Array:
    """AMCT's scales as float32, one for each range from ``low`` (at most 0) to ``high`` (at least 0), both float64."""
    exact = np.maximum(high / HIGH, low / LOW) if symmetric else (high - low) / (HIGH - LOW)
    single = np.asarray(exact, np.float32)
    return np.where(single < LEAST_SCALE, np.float32(1), single)


def _find_levels(rule: str, dtype: Dtype, *, symmetric: bool, reduce_range: bool) -> tuple[int, int]:
    if rule not in RULES:
        raise BuildError(f"no rule '{rule}' for scales; there are {', '.join(RULES)}")
    if (rule, dtype.name) not in _LEVELS:
        bias = "a bias takes scale = input scale * weight scale and zero point 0"
        raise BuildError(f"rule '{rule}' has no range for {dtype}; {bias if dtype is QINT32 else 'take rule torch'}")
    affine, even, reduced = _LEVELS[rule, dtype.name]
    if not reduce_range:
        return even if symmetric else affine
    if rule == "torch" and symmetric and dtype is QUINT8:
        raise BuildError("torch has no symmetric reduced range for quint8; take qint8, or leave reduce_range out")
    if reduced is None:
        raise BuildError(f"rule '{rule}' has no reduced range; leave reduce_range out, or use rule 'torch'")
    return reduced


def _read_range(low: ArrayLike, high: ArrayLike) -> tuple[Array, Array]:
    """The range as float32, widened to hold zero."""
    with np.errstate(over="ignore"):
        least, most = (np.asarray(end).astype(np.float32) for end in (low, high))
    if least.shape != most.shape or least.ndim > 1:
        raise BuildError(
            "low and high must be two numbers, or two 1-D arrays of one length; "
            f"got shapes {least.shape} and {most.shape}"
        )
    if not (np.isfinite(least) & np.isfinite(most)).all():
        raise BuildError("the range is not finite in float32: the calibration saw no data, or NaN or infinity in it")
    if (least > most).any():
        raise BuildError("low is above high: were they swapped, or did the calibration see no data?")
    return np.minimum(least, np.float32(0)), np.maximum(most, np.float32(0))


def _by_torch(
    low: Array, high: Array, bottom: int, top: int, eps: np.float32, middle: int | None
) -> tuple[Array, Array]:
    """``UniformQuantizationObserverBase._calculate_qparams``, in float32; symmetric where ``middle`` is given."""
    if middle is not None:
        scale = np.maximum(np.maximum(-low, high) / np.float32((top - bottom) / 2), eps)
        return scale, np.full(scale.shape, middle)
    scale = np.maximum((high - low) / np.float32(top - bottom), eps)
    return scale, np.clip(bottom - np.rint(low / scale), bottom, top)


def _by_onnxruntime(low: Array, high: Array, bottom: int, top: int, *, symmetric: bool) -> tuple[Array, Array]:
    """``compute_scale_zp`` of onnxruntime.quantization, in float64; a range of nothing has scale 1, zero point 0."""
    if symmetric:
        high = np.maximum(-low, high)
        low = -high
    scale = (high.astype(np.float64) - low.astype(np.float64)) / (top - bottom)
    zero_point = np.full(scale.shape, np.rint((bottom + top) / 2)) if symmetric else np.rint(bottom - low / scale)
    nothing = scale < np.finfo(np.float32).tiny
    return np.where(nothing, 1.0, scale).astype(np.float32), np.where(nothing, 0.0, zero_point)


def _by_amct(low: Array, high: Array, *, symmetric: bool) -> tuple[Array, Array]:
    """AMCT's formulas for -128 to 127, from ends in float64; its offset is the zero point."""
    scale = choose_amct_scales(low, high, symmetric=symmetric)
    zero_point = np.zeros(scale.shape) if symmetric else np.minimum(LOW - np.rint(low / scale), HIGH)
    return scale, zero_point
