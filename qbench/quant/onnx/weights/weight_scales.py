"""The scales of a weight, and its integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.affine import quantize_linear
from qbench.quant.scale_rules import choose_amct_scales

Array = NDArray[Any]


def arq(weight: Array, axis: int | None) -> tuple[float, ...]:
    """AMCT's ARQ: one symmetric scale for each channel along ``axis``, or for the whole tensor with None; the side
    that reaches further decides (max / 127 or -min / 128), a channel of zeros gets 1.

    Raises ``ValueError`` for inf and NaN, with their channel.
    """
    rows = _channels(weight, axis)
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if wrong.size:
        where = "" if axis is None else f", the first in channel {wrong[0]}"
        raise ValueError(f"the weight has {np.count_nonzero(~np.isfinite(rows))} values that are NaN or inf{where}")
    low, high = rows.min(axis=1, initial=0.0), rows.max(axis=1, initial=0.0)
    return tuple(choose_amct_scales(low, high, symmetric=True).tolist())


def quantized(weight: Array, scales: tuple[float, ...], axis: int | None) -> Array:
    """The weight as int8, in its shape, with the scales of its channels."""
    return quantize_linear(weight, spread(scales, axis, weight.ndim))


def spread(scales: tuple[float, ...], axis: int | None, rank: int) -> Array:
    """The scales (float32) shaped so that they broadcast over a weight of that rank."""
    shape = [1] * rank
    if axis is not None:
        shape[axis] = len(scales)
    shaped: Array = np.asarray(scales, np.float32).reshape(shape)
    return shaped


def _channels(weight: Array, axis: int | None) -> Array:
    """float64, a row for each channel."""
    values = np.asarray(weight, np.float64)
    rows: Array = (
        values.reshape(1, -1) if axis is None else np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    )
    return rows
