"""From the range of a tensor's values to a scale and a zero point, by the rule of each tool.

The same tensor gets another scale from another tool: compare each with its own rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qbench.errors import BuildError
from qbench.quant.affine import QINT32, QUINT8, Dtype, dtype_named

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class QParams:
    """``scale`` (a float32, as a float) and ``zero_point``; arrays of float64 and int64 for a range per channel."""

    scale: float | Array
    zero_point: int | Array


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
_SMALLEST = {"torch": 2.0**-23, "qnnpack": 2.0**-12, "amct": 2.0**-23}  # 2**-23 = 1.19e-7, float32's epsilon


def qparams(
    low: ArrayLike,
    high: ArrayLike,
    dtype: Dtype | str,
    *,
    rule: str = "torch",
    symmetric: bool = False,
    reduce_range: bool = False,
) -> QParams:
    """The scale and zero point with which ``dtype`` covers the values ``low`` to ``high`` (numbers, or 1-D arrays with
    one range per channel), by the rule of a tool; zero is always in the range.

    - ``torch``: ``MinMaxObserver`` and its kin; symmetric |max| / 127.5;
    - ``qnnpack``: torch's symmetric QNNPACK qconfig, qint8 only; symmetric |max| / 127, no scale below 2**-12;
    - ``onnxruntime``: ``quant_utils.compute_scale_zp``; symmetric qint8 |max| / 127;
    - ``amct``: Huawei's AMCT, qint8 only; symmetric max / 127 or |min| / 128, by the side that dominates; a scale below
      1.19e-7 becomes 1.

    ``reduce_range`` leaves one bit unused (torch and onnxruntime). Raises ``BuildError`` for a range that is empty, not
    finite or too wide for float32, and for what a rule does not have.
    """
    kind = dtype_named(dtype)
    bottom, top = _levels(rule, kind, symmetric=symmetric, reduce_range=reduce_range)
    least, most = _range(low, high)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if rule == "onnxruntime":
            scale, zero_point = _by_onnxruntime(least, most, bottom, top, symmetric=symmetric)
        elif rule == "amct":
            scale, zero_point = _by_amct(least, most, symmetric=symmetric)
        else:
            middle = 128 if kind is QUINT8 else 0
            eps = np.float32(_SMALLEST[rule])
            scale, zero_point = _by_torch(least, most, bottom, top, eps, middle if symmetric else None)
    if not np.isfinite(scale).all():
        raise BuildError("the range is too wide for a float32 scale; clip the outliers, or choose another calibrator")
    if scale.ndim == 0:
        return QParams(scale=float(scale), zero_point=int(zero_point))
    return QParams(scale=scale.astype(np.float64), zero_point=zero_point.astype(np.int64))


def _levels(rule: str, dtype: Dtype, *, symmetric: bool, reduce_range: bool) -> tuple[int, int]:
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


def _range(low: ArrayLike, high: ArrayLike) -> tuple[Array, Array]:
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
    """AMCT's formulas for -128 to 127; its offset is the zero point."""
    wide = (high.astype(np.float64), low.astype(np.float64))
    exact = np.where(high >= -low, wide[0] / 127, -wide[1] / 128) if symmetric else (wide[0] - wide[1]) / 255
    single = exact.astype(np.float32)
    scale = np.where(single < np.float32(_SMALLEST["amct"]), np.float32(1), single)
    offset = np.zeros(scale.shape) if symmetric else np.clip(-128 - np.rint(wide[1] / scale), -128, 127)
    return scale, offset
