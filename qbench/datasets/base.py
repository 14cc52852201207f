"""The contract of a data set: named splits of raw examples, and the one preprocessing object.

A data-set plug-in is a function ``open_dataset(value, *, base, options) -> Dataset`` in the registry:
``value`` is what stands behind its name in the suite (a path, or None for ``dataset: digits``), ``base`` the
suite's folder that relative paths start from, ``options`` the remaining keys. It must not read the examples yet.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.datasets.options import ScalingOptions
from qbench.errors import DataError

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
        return tuple(self._one(array) for array in inputs)

    def _one(self, array: Array) -> Array:
        if self.reverse_channels:
            array = np.flip(array, self.channel_axis)
        if not self.to_float:
            return np.ascontiguousarray(array)
        shape: list[int] = []
        if max(len(self.mean), len(self.std)) > 1:
            shape = [1] * array.ndim
            shape[self.channel_axis] = -1
        mean = np.asarray(self.mean, dtype=np.float32).reshape(shape if len(self.mean) > 1 else [])
        std = np.asarray(self.std, dtype=np.float32).reshape(shape if len(self.std) > 1 else [])
        scaled = array.astype(np.float32) * np.float32(self.scale)
        return np.ascontiguousarray((scaled - mean) / std, dtype=np.float32)

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


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Raw examples of one split: ``inputs`` one array per model input, all with the same first axis n;
    ``labels`` of length n, or None where there are none; ``ids`` names each example for a reader."""

    inputs: tuple[Array, ...]
    labels: Array | None
    ids: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.inputs[0])

    def take(self, index: Array) -> Examples:
        """The examples at the given positions, in that order."""
        return Examples(
            inputs=tuple(array[index] for array in self.inputs),
            labels=None if self.labels is None else self.labels[index],
            ids=tuple(self.ids[int(i)] for i in index) if self.ids else (),
        )

    def digest(self) -> str:
        """The sha256 of every input and label, as 64 hex digits."""
        sha = hashlib.sha256()
        for array in (*self.inputs, *(() if self.labels is None else (self.labels,))):
            sha.update(f"{array.dtype}{array.shape}".encode())
            sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()


def positions(n: int, samples: int, seed: int) -> Array:
    """Which ``samples`` of ``n`` a seed draws without replacement, ascending; fewer are a subset of more.

    Raises ``DataError`` when there are not that many.
    """
    if not 1 <= samples <= n:
        raise DataError(f"samples: {samples} were asked for, there are {n}; write samples: {n}, or fewer")
    # The old generator: its stream is frozen for good (NEP 19), that of default_rng may change.
    return np.sort(np.random.RandomState(seed % 2**32).permutation(n)[:samples])


def subset(examples: Examples, samples: int, seed: int) -> Examples:
    """The examples at ``positions``: the same for the same seed, stratified by nothing."""
    return examples.take(positions(len(examples), samples, seed))


class Dataset(ABC):
    """Named splits of examples. ``classes`` is the number of classes, None for regression or unknown."""

    name: str
    splits: tuple[str, ...]
    classes: int | None = None
    preprocessing: Preprocessing = Preprocessing()
    # The split that was read whole last: several draws from it read it once.
    _whole: tuple[str, Examples] | None = None

    @abstractmethod
    def load(self, split: str) -> Examples:
        """All raw examples of one of ``splits``; raises ``DataError`` naming the file when it cannot."""

    def sample(self, split: str, samples: int | None, seed: int) -> Examples:
        """``samples`` examples of a split drawn by ``seed`` (None: all); a data set of files reads only those."""
        if self._whole is None or self._whole[0] != split:
            self._whole = (split, self.load(split))
        examples = self._whole[1]
        try:
            return examples if samples is None else subset(examples, samples, seed)
        except DataError as error:
            raise DataError(f"{self.name}: split '{split}': {error}") from error

    def count(self, split: str) -> int:
        """How many examples a split holds; a data set of files counts them without reading them."""
        if self._whole is None or self._whole[0] != split:
            self._whole = (split, self.load(split))
        return len(self._whole[1])

    def known_labels(self, split: str) -> Array | None:
        """All labels of a split where they are at hand without reading it (again); else None."""
        return self._whole[1].labels if self._whole is not None and self._whole[0] == split else None
