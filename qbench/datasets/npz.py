"""Arrays in an ``.npz`` file, as ``numpy.savez`` and Keras write them.

Keys: ``<split>_inputs`` (or ``x_<split>``) and ``<split>_labels`` (or ``y_<split>``); several inputs of a model
are ``<split>_inputs_0``, ``<split>_inputs_1`` and so on. A file with ``inputs`` and ``labels`` alone is split into
train and test by ``seed`` and ``test_share``.

Options: ``classes``; ``scale``, ``mean``, ``std``; ``to_float: false`` for models that take whole numbers;
``stored_layout``: how images lie in the file, ``nhwc`` and ``hw`` are turned into (n, channels, height, width).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples
from qbench.datasets.npz_keys import DIMENSIONS, split_keys
from qbench.datasets.preprocessing import read_preprocessing
from qbench.datasets.splits import SPLITS, split_by_share
from qbench.datasets.validation import check_dataset, read_inputs, read_labels, require_split
from qbench.errors import DataError
from qbench.files import npz_file


class Npz(Dataset):
    """The splits of one file; arrays are read when asked for."""

    def __init__(self, file: Path, name: str, options: opt.NpzOptions) -> None:
        self.name = name
        self.file = file
        self.keys = split_keys(_names(file), file)
        self.lone = self.keys.get("")
        self.splits = SPLITS if self.lone else tuple(sorted(self.keys))
        self.classes = options.classes
        self.options = options
        self.preprocessing = read_preprocessing(options, to_float=options.to_float)

    def load(self, split: str) -> Examples:
        """All examples of one split; ids are ``<split>[<position>]``."""
        require_split(self, split)
        keys = self.lone or self.keys[split]
        arrays = self._arrays([*keys.inputs, *([keys.labels] if keys.labels else [])])
        inputs = tuple(self._input(arrays, key) for key in keys.inputs)
        labels = read_labels(arrays[keys.labels], self._locate(keys.labels)) if keys.labels else None
        name = "inputs" if self.lone else split
        examples = Examples(inputs=inputs, labels=labels, ids=tuple(f"{name}[{i}]" for i in range(len(inputs[0]))))
        check_dataset(self, split, examples)  # before a split is taken out of it: lengths must agree
        if self.lone:
            stratify = labels is not None and labels.dtype.kind != "f"
            groups = labels if labels is not None and stratify else np.zeros(len(examples))
            examples = examples.take(
                split_by_share(groups, test_share=self.options.test_share, seed=self.options.seed)[split]
            )
        return examples

    def _locate(self, key: str) -> str:
        return f"{self.file}: {key}"

    def _input(self, arrays: Mapping[str, Array], key: str) -> Array:
        return _to_channels_first(
            read_inputs(arrays[key], self._locate(key)), self.options.stored_layout, self._locate(key)
        )

    def _arrays(self, keys: list[str]) -> dict[str, Array]:
        try:
            return npz_file.read(self.file, keys)
        except npz_file.BadNpz as error:
            where = self.file if error.key is None else self._locate(error.key)
            if error.pickled:
                raise DataError(
                    f"{where}: cannot be read without pickle, which could run code; save it as "
                    "numbers, for example np.asarray(values, dtype='float32')"
                ) from error
            raise DataError(f"{where}: the file is damaged here: {error}") from error


def _names(file: Path) -> tuple[str, ...]:
    try:
        return npz_file.names(file)
    except npz_file.BadNpz as error:
        raise DataError(f"{file}: not an .npz file (write it with numpy.savez): {error}") from error


def _to_channels_first(array: Array, layout: str, where: str) -> Array:
    dimensions = DIMENSIONS.get(layout, array.ndim)
    if array.ndim != dimensions:
        raise DataError(f"{where}: stored_layout '{layout}' has {dimensions} dimensions, this array {array.shape}")
    if layout == "nhwc":
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    return array[:, None] if layout == "hw" else array


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The file's splits; reads the names in the file, not the arrays."""
    keys = opt.read(opt.NpzOptions, options)
    file = opt.read_path("npz", value, base)
    if file.is_dir():
        raise DataError(f"npz: {file} is a folder; for folders of images use image-folder")
    return Npz(file, f"npz:{value}", keys)
