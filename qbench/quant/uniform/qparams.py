"""Scale and offset of a uniform 8-bit quantization, as AMCT defines it: q = clip(round(x / s) + offset, -128, 127)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LOW, HIGH = -128, 127
# A smaller scale is that of a tensor that is all zeros (float32's epsilon): it is quantized with a scale of 1.
LEAST_SCALE = 1.1920929e-7


@dataclass(frozen=True, kw_only=True)
class QParams:
    """Of one tensor: x' = (q - offset) * scale with q in -128 .. 127."""

    scale: float
    offset: int


def asymmetric(low: float, high: float) -> QParams:
    """The whole range of q for [low, high], widened to hold 0. Raises ``ValueError`` for inf and NaN."""
    high, low = max(_finite(high), 0.0), min(_finite(low), 0.0)
    scale = float(np.float32((high - low) / (HIGH - LOW)))
    if scale < LEAST_SCALE:
        return QParams(scale=1.0, offset=0)
    return QParams(scale=scale, offset=int(np.clip(LOW - np.rint(low / scale), LOW, HIGH)))


def symmetric(low: float, high: float) -> QParams:
    """Offset 0; the side that reaches further decides: high / 127 or -low / 128. Raises ``ValueError`` for inf, NaN."""
    scale = float(np.float32(max(_finite(high) / HIGH, _finite(low) / LOW, 0.0)))
    return QParams(scale=1.0 if scale < LEAST_SCALE else scale, offset=0)


def quantize(x: Array, scale: Array | float, offset: Array | int = 0) -> Array:
    """q as int8, shape of ``x``; ``scale`` and ``offset`` broadcast. Rounds half to even, in float32."""
    steps = np.rint(np.asarray(x, np.float32) / np.asarray(scale, np.float32))
    q: Array = np.clip(steps + np.asarray(offset, np.float32), LOW, HIGH).astype(np.int8)
    return q


def dequantize(q: Array, scale: Array | float, offset: Array | int = 0) -> Array:
    """x' as float32, shape of ``q``."""
    values: Array = (q.astype(np.float32) - np.asarray(offset, np.float32)) * np.asarray(scale, np.float32)
    return values


def _finite(value: float) -> float:
    if not np.isfinite(value):
        raise ValueError(f"a range that ends at {value} has no scale")
    return float(value)
