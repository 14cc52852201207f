"""8-bit arithmetic in numpy: from values to integers and back (``scale_rules`` gives the scale and the zero point).

``quantize_per_tensor`` and ``quantize_per_channel`` are what the kernels of the installed torch compute, bit for bit:

    Q = saturate(round_half_even(x * (1 / scale) + zero_point))        x' = (Q - zero_point) * scale

in float32 with ``1 / scale`` rounded first, as torch 2.13's kernels on x86 do it (``fbgemm::Quantize``): per tensor in
8 bits product and sum are rounded once (a fused multiply-add), per channel and in 32 bits one after the other; on the
way back, scales per channel keep the float64 in which torch holds them. Inside the representable range
[(qmin - zero_point) scale, (qmax - zero_point) scale] the error is at most scale / 2, outside it values clip. Halfway
between two integers an odd zero point decides otherwise than in ``round(x / scale) + zero_point``, which is what
``quantize_linear``, ONNX's QuantizeLinear, AMCT and torch's fake quantize compute.

torch 2.14 adds the zero point behind the rounding, in all of them: ``saturate(round_half_even(x * (1 / scale)) +
zero_point)``, found by values next to half a step: a suite's answers on torch's engines may change with it.

Where torch answers in silence with garbage (a scale of zero, NaN in the input), this refuses; where its int32 wraps
around (dequantizing qint32 per tensor with Q - zero_point beyond 2**31; in torch 2.14 ``quint8`` of values beyond 2**31
steps, which get the lowest level), this does not.
"""

from __future__ import annotations

import functools
import importlib.metadata
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qbench.errors import BuildError

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Dtype:
    """A quantized type: the integers ``low`` to ``high``, kept as numpy's type ``storage``."""

    name: str
    storage: str
    low: int
    high: int

    def __str__(self) -> str:
        return self.name


QUINT8 = Dtype(name="quint8", storage="uint8", low=0, high=255)
QINT8 = Dtype(name="qint8", storage="int8", low=-128, high=127)
QINT32 = Dtype(name="qint32", storage="int32", low=-(2**31), high=2**31 - 1)
DTYPES = {dtype.name: dtype for dtype in (QUINT8, QINT8, QINT32)}
LOW, HIGH = QINT8.low, QINT8.high


@dataclass(frozen=True, kw_only=True, eq=False)
class Quantized:
    """A quantized tensor: ``integers`` in the storage type of ``dtype``, any shape.

    Per tensor (``axis`` None) ``scale`` is a float and ``zero_point`` an int; per channel both are arrays, one value
    for each index along ``axis``. Raises ``BuildError`` for parts that do not fit each other.
    """

    integers: Array
    scale: float | Array
    zero_point: int | Array
    dtype: Dtype
    axis: int | None = None

    def __post_init__(self) -> None:
        if self.integers.dtype != self.dtype.storage:
            raise BuildError(
                f"{self.dtype} is stored as {self.dtype.storage}, got {self.integers.dtype}: convert it, or name the "
                "dtype that it was quantized to"
            )
        if self.axis is None:
            _require_scale(np.asarray(self.scale))
            _require_zero_point(np.asarray(self.zero_point), self.dtype)
        else:
            _require_channels(self.integers, self.scale, self.zero_point, self.axis)
            _require_scale(np.asarray(self.scale), "channel")
            _require_zero_point(np.asarray(self.zero_point), self.dtype, "channel")

    def int_repr(self) -> Array:
        """The integers, in the shape of the tensor: uint8, int8 or int32."""
        return self.integers

    def dequantize(self) -> Array:
        """(integers - zero_point) * scale as float32, in the shape of the tensor."""
        with np.errstate(over="ignore"):
            if self.axis is None:
                steps = (self.integers.astype(np.int64) - self.zero_point).astype(np.float32)
                return np.asarray(steps * np.float32(self.scale))
            scale, zero_point = (
                _reshape_along(part, self.axis, self.integers.ndim) for part in (self.scale, self.zero_point)
            )
            steps = self.integers.astype(np.float32) - zero_point.astype(np.float32)
            return np.asarray((steps * scale.astype(np.float64)).astype(np.float32))


def quantize_per_tensor(x: ArrayLike, scale: float, zero_point: int, dtype: Dtype | str) -> Quantized:
    """``x`` (float32, any shape) in ``dtype`` (``quint8``, ``qint8``, ``qint32``) with one scale, as
    ``torch.quantize_per_tensor`` gives it; infinities saturate.

    Raises ``BuildError`` for another type than float32, NaN, a scale that is not above 0 and finite (nor may 1 / scale
    be infinite in float32), and a zero point that is not a whole number of the type.
    """
    values, kind = _require_float32(x), find_dtype(dtype)
    if np.ndim(scale) or np.ndim(zero_point):
        raise BuildError("per tensor takes one scale and one zero_point; use quantize_per_channel for one per channel")
    _require_scale(np.asarray(scale))
    _require_zero_point(np.asarray(zero_point), kind)
    step, zero = float(scale), operator.index(zero_point)
    integers = _quantize_values(values, np.asarray(step), np.asarray(zero), kind, fused=kind.storage != "int32")
    return Quantized(integers=integers, scale=step, zero_point=zero, dtype=kind)


def quantize_per_channel(
    x: ArrayLike, scales: ArrayLike, zero_points: ArrayLike, axis: int, dtype: Dtype | str
) -> Quantized:
    """``x`` (float32) in ``dtype`` with one scale and zero point for each index along ``axis``, as
    ``torch.quantize_per_channel`` gives it.

    Raises ``BuildError`` for what ``quantize_per_tensor`` refuses, for an axis that ``x`` does not have (it counts from
    0), and for scales or zero points that are not 1-D with one value per channel.
    """
    values, kind = _require_float32(x), find_dtype(dtype)
    _require_channels(values, scales, zero_points, axis)
    scale, zero_point = np.asarray(scales), np.asarray(zero_points)
    _require_scale(scale, "channel")
    _require_zero_point(zero_point, kind, "channel")
    scale, zero_point = scale.astype(np.float64), zero_point.astype(np.int64)
    along = [_reshape_along(part, axis, values.ndim) for part in (scale, zero_point)]
    integers = _quantize_values(values, along[0], along[1], kind, fused=False)
    return Quantized(integers=integers, scale=scale, zero_point=zero_point, dtype=kind, axis=axis)


def representable(scale: float, zero_point: int, dtype: Dtype | str) -> tuple[float, float]:
    """The least and the largest value that survive, in the unit of the tensor: (qmin - zero_point) * scale and
    (qmax - zero_point) * scale; raises ``BuildError`` as ``quantize_per_tensor`` does."""
    kind = find_dtype(dtype)
    ends = np.asarray([kind.low, kind.high], dtype=kind.storage)
    low, high = Quantized(integers=ends, scale=scale, zero_point=zero_point, dtype=kind).dequantize()
    return float(low), float(high)


def find_dtype(dtype: Dtype | str) -> Dtype:
    """A quantized type by itself, its name, or torch's type of that name; raises ``BuildError`` for others."""
    named = dtype if isinstance(dtype, Dtype) else DTYPES.get(str(dtype).removeprefix("torch."))
    if named is None:
        raise BuildError(f"no quantized dtype '{dtype}'; there are {', '.join(DTYPES)}")
    return named


def quantize_linear(x: Array, scale: Array | float, zero_point: Array | int = 0) -> Array:
    """clip(round(x / scale) + zero_point, -128, 127) as int8, in the shape of ``x``; ``scale`` and ``zero_point``
    broadcast. Rounds half to even, in float32."""
    steps = np.asarray(np.asarray(x, np.float32) / np.asarray(scale, np.float32))
    np.rint(steps, out=steps)
    steps += np.asarray(zero_point, np.float32)
    return np.clip(steps, LOW, HIGH, out=steps).astype(np.int8)


def dequantize_linear(q: Array, scale: Array | float, zero_point: Array | int = 0) -> Array:
    """(q - zero_point) * scale as float32, in the shape of ``q``."""
    values = q.astype(np.float32)
    values -= np.asarray(zero_point, np.float32)
    values *= np.asarray(scale, np.float32)
    return values


def fake_quantize(x: Array, scale: Array | float, zero_point: Array | int = 0) -> Array:
    """The float32 values that ``x`` becomes by ``quantize_linear`` and back."""
    return dequantize_linear(quantize_linear(x, scale, zero_point), scale, zero_point)


@functools.cache
def adds_zero_point_first() -> bool:
    """Whether the installed torch adds the zero point before it rounds: 2.13 does, 2.14 does not. Without a torch, as
    the newest."""
    try:
        major, minor = importlib.metadata.version("torch").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return False
    return (int(major), int(minor)) < (2, 14)


def _quantize_values(values: Array, scale: Array, zero_point: Array, dtype: Dtype, *, fused: bool) -> Array:
    with np.errstate(over="ignore"):  # what overflows to infinity saturates below
        inverse = np.float32(1) / scale.astype(np.float32)
        if not adds_zero_point_first():  # per tensor to an int32, per channel to a float32
            rounded = np.rint(values * inverse)
            steps = (
                rounded.astype(np.float64) + zero_point if not zero_point.ndim else rounded + zero_point.astype("f4")
            )
        elif fused:  # x86's long double holds the product and the sum exactly, wherever they do not saturate
            steps = (values.astype(np.longdouble) * inverse + zero_point).astype(np.float32)
        else:
            steps = values * inverse + zero_point.astype(np.float32)
    # Clipped in float64, which holds 2**31 - 1.
    return np.asarray(np.clip(np.rint(steps).astype(np.float64), dtype.low, dtype.high).astype(dtype.storage))


def _reshape_along(part: float | Array, axis: int | None, dimensions: int) -> Array:
    """One value per channel, shaped to be broadcast over the tensor."""
    values = np.asarray(part)
    return values if axis is None else values.reshape([-1 if i == axis else 1 for i in range(dimensions)])


def _require_float32(x: ArrayLike) -> Array:
    """The values as an array; Python numbers become float32, as ``torch.tensor`` makes them."""
    values = np.asarray(x) if hasattr(x, "dtype") else np.asarray(x, dtype=np.float32)
    if values.dtype != np.float32:
        raise BuildError(f"only float32 can be quantized, got {values.dtype}: convert it with astype('float32')")
    missing = np.isnan(values)
    if missing.any():
        first = tuple(int(i) for i in np.argwhere(missing)[0])
        raise BuildError(
            f"{int(missing.sum())} of {values.size} values are NaN (the first at index {first}): no integer stands for "
            "NaN; correct the data or the layer that gave it"
        )
    return values


def _require_channels(values: Array, scales: ArrayLike, zero_points: ArrayLike, axis: int) -> None:
    if not 0 <= operator.index(axis) < values.ndim:
        raise BuildError(
            f"axis {axis} is out of range for a tensor of shape {values.shape}: "
            + (f"it counts from 0 to {values.ndim - 1}" if values.ndim else "use quantize_per_tensor for one number")
        )
    channels = values.shape[axis]
    for name, part in (("scales", scales), ("zero_points", zero_points)):
        if np.shape(part) != (channels,):
            raise BuildError(
                f"{name} must be 1-D with one value per channel, {channels} along axis {axis}; "
                f"got shape {np.shape(part)}"
            )


def _require_scale(scale: Array, each: str | None = None) -> None:
    """Above 0 and finite in float32, where torch computes, and so must be its reciprocal."""
    if scale.dtype.kind not in "iuf":
        raise BuildError(f"a scale is a number, got {scale.dtype}; qparams(low, high, dtype) gives one")
    with np.errstate(over="ignore", divide="ignore"):
        single = scale.astype(np.float32)
        good = (single > 0) & np.isfinite(single) & np.isfinite(np.float32(1) / single)
    if not good.all():
        raise BuildError(
            "the scale must be above 0 and finite in float32, and so must 1/scale; "
            f"got {_describe_first_bad(scale, good, each)}; qparams(low, high, dtype) gives one that is"
        )


def _require_zero_point(zero_point: Array, dtype: Dtype, each: str | None = None) -> None:
    if zero_point.dtype.kind not in "iu" and zero_point.size:
        raise BuildError(f"a zero point is a whole number, got {zero_point.dtype}: round it, in an integer type")
    good = (zero_point >= dtype.low) & (zero_point <= dtype.high)
    if not np.all(good):
        raise BuildError(
            f"the zero point must lie in {dtype}, {dtype.low} to {dtype.high}; "
            f"got {_describe_first_bad(zero_point, good, each)}; qparams(low, high, dtype) gives one that does"
        )


def _describe_first_bad(values: Array, good: Array, each: str | None) -> str:
    """``0.0 at channel 3``, or the one value."""
    if each is None:
        return str(values[()])
    index = int(np.flatnonzero(~good)[0])
    return f"{values[index]} at {each} {index}"
