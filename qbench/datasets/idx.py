"""IDX files, the format of MNIST and Fashion-MNIST, plain or gzipped.

The value is a folder with MNIST's names (``train-images-idx3-ubyte``, ``t10k-labels-idx1-ubyte`` …, also with
``.idx3-ubyte`` and ``.gz``), giving the splits ``train`` and ``test``, or a mapping
``{<split>: {inputs: file, labels: file}}``. Images of shape (n, height, width) get one channel.

Options: ``classes``; ``scale`` (default 1/255), ``mean``, ``std``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbench.datasets import options as opt
from qbench.datasets.base import Dataset, Examples
from qbench.datasets.idx_format import find_file, read_idx
from qbench.datasets.preprocessing import read_preprocessing
from qbench.datasets.validation import check_dataset, read_labels, require_split
from qbench.errors import DataError

PREFIXES = {"train": "train", "test": "t10k"}


class Idx(Dataset):
    """The splits of a folder or of the given files."""

    def __init__(self, name: str, files: Mapping[str, tuple[Path, Path | None]], options: opt.IdxOptions) -> None:
        self.name = name
        self.files = files
        self.splits = tuple(files)
        self.classes = options.classes
        self.preprocessing = read_preprocessing(options, scale=1 / 255)

    def load(self, split: str) -> Examples:
        """All examples of one split, in the order of the file; ids are ``<split>[<position>]``."""
        require_split(self, split)
        inputs_file, labels_file = self.files[split]
        inputs = read_idx(inputs_file)
        if inputs.ndim == 3:
            inputs = inputs[:, None]
        labels = None if labels_file is None else read_labels(read_idx(labels_file), str(labels_file))
        examples = Examples(inputs=(inputs,), labels=labels, ids=tuple(f"{split}[{i}]" for i in range(len(inputs))))
        check_dataset(self, split, examples)
        return examples


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The splits of the folder or files; reads no file yet."""
    keys = opt.read(opt.IdxOptions, options)
    if isinstance(value, Mapping):
        return Idx(f"idx:{','.join(map(str, value))}", _name_files(value, base), keys)
    folder = opt.read_path("idx", value, base)
    if not folder.is_dir():
        raise DataError(f"idx: {folder} is not a folder; name single files by {{train: {{inputs: f, labels: f}}}}")
    return Idx(f"idx:{value}", _find_files(folder), keys)


def _name_files(value: Mapping[str, Any], base: Path) -> dict[str, tuple[Path, Path | None]]:
    files: dict[str, tuple[Path, Path | None]] = {}
    for split, pair in value.items():
        if not isinstance(pair, Mapping) or "inputs" not in pair or set(pair) - {"inputs", "labels"}:
            raise DataError(f"idx: {split}: expected {{inputs: file, labels: file}}, got {pair!r}")
        labels = opt.read_path("idx", pair["labels"], base) if pair.get("labels") else None
        files[str(split)] = (opt.read_path("idx", pair["inputs"], base), labels)
    if not files:
        raise DataError("idx: no splits; expected {train: {inputs: file, labels: file}, test: …}")
    return files


def _find_files(folder: Path) -> dict[str, tuple[Path, Path | None]]:
    files = {}
    for split, prefix in PREFIXES.items():
        inputs = find_file(folder, f"{prefix}-images", "idx3-ubyte")
        if inputs:
            files[split] = (inputs, find_file(folder, f"{prefix}-labels", "idx1-ubyte"))
    if not files:
        raise DataError(f"idx: {folder} holds none of train-images-idx3-ubyte[.gz], t10k-images-idx3-ubyte[.gz]")
    return files
