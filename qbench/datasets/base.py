"""The contract of a data set: named splits of raw examples.

A data-set plug-in is a function ``open_dataset(value, *, base, options) -> Dataset`` in the registry:
``value`` is what stands behind its name in the suite (a path, or None for ``dataset: digits``), ``base`` the
suite's folder that relative paths start from, ``options`` the remaining keys. It must not read the examples yet.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.datasets.preprocessing import Preprocessing
from qbench.errors import DataError

Array = NDArray[Any]


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


class Dataset(ABC):
    """Named splits of examples. ``classes`` is the number of classes, None for regression or unknown; ``notes`` are
    what a reader of scores must know of them."""

    name: str
    splits: tuple[str, ...]
    classes: int | None = None
    notes: tuple[str, ...] = ()
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
            return examples if samples is None else examples.take(self.draw(len(examples), samples, seed))
        except DataError as error:
            raise DataError(f"{self.name}: split '{split}': {error}") from error

    def draw(self, n: int, samples: int, seed: int) -> Array:
        """``positions``; of a data set whose examples belong together, those of whole groups."""
        return positions(n, samples, seed)

    def count(self, split: str) -> int:
        """How many examples a split holds; a data set of files counts them without reading them."""
        if self._whole is None or self._whole[0] != split:
            self._whole = (split, self.load(split))
        return len(self._whole[1])

    def known_labels(self, split: str) -> Array | None:
        """All labels of a split where they are at hand without reading it (again); else None."""
        return self._whole[1].labels if self._whole is not None and self._whole[0] == split else None
