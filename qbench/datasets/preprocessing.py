"""The one preprocessing object of a data set: raw examples -> what the model takes."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.datasets.options import ScalingOptions

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Turns raw examples into what the model takes: ``(x * scale - mean) / std``, float32.

    ``mean`` and ``std`` are one number or one per channel (``channel_axis`` of a batch). ``reverse_channels``: examples
    are RGB and the model takes BGR, in whose order ``mean`` and ``std`` are, too. Integer inputs of models
    that take integers (token ids) pass unchanged with ``to_float=False``. The same object serves calibration,
    evaluation and timing.
    """

    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    to_float: bool = True
    channel_axis: int = 1
    reverse_channels: bool = False

    def __call__(self, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
        """One contiguous array per model input, first axis = example."""
        return tuple(self._prepare(array) for array in inputs)

    def _prepare(self, array: Array) -> Array:
        if self.reverse_channels:
            array = np.flip(array, self.channel_axis)
        if not self.to_float:
            return np.ascontiguousarray(array)
        scaled = array.astype(np.float32) * np.float32(self.scale)
        mean, std = (self._lay_along(numbers, array.ndim) for numbers in (self.mean, self.std))
        return np.ascontiguousarray((scaled - mean) / std, dtype=np.float32)

    def _lay_along(self, numbers: tuple[float, ...], axes: int) -> Array:
        """One number for all values, or each along the axis of the channels."""
        values = np.asarray(numbers, dtype=np.float32)
        if len(numbers) == 1:
            return values
        return values.reshape([len(numbers) if axis == self.channel_axis % axes else 1 for axis in range(axes)])

    def digest(self) -> str:
        """The sha256 of the parameters, as 64 hex digits."""
        parameters = asdict(self)
        if not self.reverse_channels:
            del parameters["reverse_channels"]  # so that records from before it was there are of the same data
        return hashlib.sha256(repr(sorted(parameters.items())).encode()).hexdigest()


def read_preprocessing(
    options: ScalingOptions,
    *,
    scale: float = 1.0,
    to_float: bool = True,
    channel_axis: int = 1,
    reverse_channels: bool = False,
) -> Preprocessing:
    """What the options make of raw numbers; ``scale`` where they name none."""
    return Preprocessing(
        scale=scale if options.scale is None else options.scale,
        mean=options.mean,
        std=options.std,
        to_float=to_float,
        channel_axis=channel_axis,
        reverse_channels=reverse_channels,
    )
