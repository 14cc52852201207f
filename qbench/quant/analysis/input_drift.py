"""Whether the evaluation data fits an int8 artifact: values that it clips, and data unlike that of its calibration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.analysis.quantized_range import InputRange, Ranges
from qbench.record.schema import InputFit, Spread

Array = NDArray[Any]
# From this share of clipped values on there is a warning: one in a thousand, as the tails of a percentile may have.
CLIPPED = 1e-3
# Calibration and evaluation differ grossly where one deviates three times as much as the other (0..255 against 0..1:
# 255 times), or a channel's mean is off by a whole standard deviation (drawn from one source it is a tenth or so).
SCALED, MOVED = 3.0, 1.0
# Channels are swapped where both outer ones are off by this many standard errors, each to where the other was.
ERRORS, LEFT_OVER = 6.0, 0.5
_MOST_CHANNELS = 16


class InputValues:
    """Sums up the values of one model input, batch by batch."""

    def __init__(self, channel_axis: int) -> None:
        self._axis = channel_axis
        self._count, self._sum, self._squares = 0, 0.0, 0.0
        self._least, self._greatest = math.inf, -math.inf
        self._means: list[Array] = []  # of each example, by channel

    def add(self, batch: Array) -> None:
        """Takes in the examples of one batch (first axis = example)."""
        self._count += batch.size
        self._least = min(self._least, float(batch.min()))
        self._greatest = max(self._greatest, float(batch.max()))
        self._sum += float(batch.sum(dtype=np.float64))
        flat = batch.reshape(-1)
        self._squares += float(np.dot(flat, flat)) if flat.dtype == np.float64 else _sum_of_squares(flat)
        if batch.ndim > 2 and 1 < batch.shape[self._axis] <= _MOST_CHANNELS:
            axes = tuple(axis for axis in range(1, batch.ndim) if axis != self._axis % batch.ndim)
            self._means.append(batch.mean(axis=axes, dtype=np.float64))

    def spread(self) -> Spread:
        """What was seen; raises ``ValueError`` where nothing was."""
        if not self._count:
            raise ValueError("no example was seen")
        mean = self._sum / self._count
        channels: Array = np.concatenate(self._means) if self._means else np.zeros((0, 0))
        apart = channels - channels.mean(axis=1, keepdims=True) if channels.size else channels
        errors = apart.std(axis=0, ddof=1) / math.sqrt(len(apart)) if len(apart) > 1 else ()
        return Spread(
            least=self._least,
            greatest=self._greatest,
            mean=mean,
            deviation=math.sqrt(max(0.0, self._squares / self._count - mean * mean)),
            channels=tuple(float(channel) for channel in channels.mean(axis=0)) if channels.size else (),
            channel_errors=tuple(float(error) for error in errors),
        )


def _sum_of_squares(values: Array) -> float:
    """In double precision, in blocks that stay in the cache."""
    blocks = (values[i : i + 65536].astype(np.float64) for i in range(0, len(values), 65536))
    return float(sum(np.dot(block, block) for block in blocks))


def count_outside(batch: Array, fitting: InputRange) -> int:
    """How many values of a batch are clipped: up to half a step outside a value is rounded to the end, as any other is
    to its level."""
    half = fitting.step * (0.5 + 1e-5)
    return int(np.count_nonzero((batch < fitting.low - half) | (batch > fitting.high + half)))


def measure_spreads(batches: Iterable[Sequence[Array]], channel_axis: int) -> tuple[Spread | None, ...]:
    """What each model input was over all batches; None for inputs of whole numbers, whose values are names."""
    values: tuple[InputValues | None, ...] | None = None
    for batch in batches:
        if values is None:
            values = tuple(InputValues(channel_axis) if array.dtype.kind == "f" else None for array in batch)
        for of_input, array in zip(values, batch, strict=True):
            if of_input is not None:
                of_input.add(array)
    return tuple(None if of_input is None else of_input.spread() for of_input in values or ())


def compare_inputs(
    evaluated: Sequence[Spread | None],
    calibrated: Sequence[Spread | None],
    ranges: Ranges,
    clipped: Sequence[float],
) -> tuple[InputFit | None, ...]:
    """What a record says of each input; ``clipped`` counts where the artifact has a range."""
    fitting = [*ranges, *[None] * (len(evaluated) - len(ranges))]
    return tuple(
        None
        if ours is None or theirs is None
        else InputFit(
            evaluated=ours,
            calibrated=theirs,
            low=None if fitting_spread is None else fitting_spread.low,
            high=None if fitting_spread is None else fitting_spread.high,
            clipped=None if fitting_spread is None else share,
        )
        for ours, theirs, fitting_spread, share in zip(evaluated, calibrated, fitting, clipped, strict=False)
    )


def describe_difference(where: str, calibrated: Spread, evaluated: Spread) -> str | None:
    """What sets calibration and evaluation data apart so far that one of them must be wrong; None for nothing."""
    small, large = sorted((calibrated.deviation, evaluated.deviation))
    if large > SCALED * small:
        return (
            f"{where} differ in scale: calibration {_of_all(calibrated)}, evaluation {_of_all(evaluated)}; scale and "
            "preprocess both splits alike"
        )
    if _swapped(calibrated, evaluated):
        return (
            f"{where} have their channels the other way round (RGB against BGR): means {_of_channels(calibrated)} in "
            f"calibration, {_of_channels(evaluated)} in evaluation; load both splits in the order that the model takes"
        )
    ours, theirs = ((data.channels or (data.mean,)) for data in (calibrated, evaluated))
    if len(ours) == len(theirs) and any(abs(a - b) > MOVED * large for a, b in zip(ours, theirs, strict=True)):
        return (
            f"{where} differ in their means: {_of_channels(calibrated)} in calibration, {_of_channels(evaluated)} in "
            f"evaluation, at a standard deviation of {large:.3g}; preprocess both splits alike"
        )
    return None


def _swapped(calibrated: Spread, evaluated: Spread) -> bool:
    """Whether first and last channel have changed places, beyond what chance does to so many examples."""
    if len(calibrated.channel_errors) != 3 or len(evaluated.channel_errors) != 3:
        return False
    ours, theirs = (np.asarray(data.channels) - np.mean(data.channels) for data in (calibrated, evaluated))
    errors = np.hypot(calibrated.channel_errors, evaluated.channel_errors)
    straight, crossed = np.abs(theirs - ours), np.abs(theirs[::-1] - ours)
    return all(straight[i] > ERRORS * max(errors[i], 1e-12) and crossed[i] < LEFT_OVER * straight[i] for i in (0, 2))


def _of_all(spread: Spread) -> str:
    return f"{spread.least:.3g} to {spread.greatest:.3g}, mean {spread.mean:.3g}, deviation {spread.deviation:.3g}"


def _of_channels(spread: Spread) -> str:
    return ", ".join(f"{mean:.3g}" for mean in spread.channels or (spread.mean,))
