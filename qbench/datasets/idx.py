"""IDX files, the format of MNIST and Fashion-MNIST, plain or gzipped.

The value is a folder with MNIST's names (``train-images-idx3-ubyte``, ``t10k-labels-idx1-ubyte`` …, also with
``.idx3-ubyte`` and ``.gz``), giving the splits ``train`` and ``test``, or a mapping
``{<split>: {inputs: file, labels: file}}``. Images of shape (n, height, width) get one channel.

Options: ``classes``; ``scale`` (default 1/255), ``mean``, ``std``.
Format: http://yann.lecun.com/exdb/mnist/ (magic: two zero bytes, type, dimensions; sizes big-endian).
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples
from qbench.datasets.check import check, labels_of, require_split
from qbench.errors import DataError

OPTIONS = ("classes", *opt.PREPROCESSING)
TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
PREFIXES = {"train": "train", "test": "t10k"}
# Deflate cannot do better (zlib's technical details); a header that promises more is damaged or a bomb.
MAX_DEFLATE_RATIO = 1032


class Idx(Dataset):
    """The splits of a folder or of the given files."""

    def __init__(self, name: str, files: Mapping[str, tuple[Path, Path | None]], options: Mapping[str, Any]) -> None:
        self.name = name
        self.files = files
        self.splits = tuple(files)
        self.classes = opt.whole("idx", options, "classes", None, low=2)
        self.preprocessing = opt.preprocessing("idx", options, scale=1 / 255)

    def load(self, split: str) -> Examples:
        """All examples of one split, in the order of the file; ids are ``<split>[<position>]``."""
        require_split(self, split)
        inputs_file, labels_file = self.files[split]
        inputs = read_idx(inputs_file)
        if inputs.ndim == 3:
            inputs = inputs[:, None]
        labels = None if labels_file is None else labels_of(read_idx(labels_file), str(labels_file))
        examples = Examples(inputs=(inputs,), labels=labels, ids=tuple(f"{split}[{i}]" for i in range(len(inputs))))
        check(self, split, examples)
        return examples


def read_idx(file: Path) -> Array:
    """The array of one file in native byte order; raises ``DataError`` for a wrong magic number or length."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            return _read(stream, file)
    except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
        raise DataError(f"{file}: cannot read this IDX file: {error}; is the download complete?") from error


def _read(stream: BinaryIO | gzip.GzipFile, file: Path) -> Array:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or magic[3] == 0:
        raise DataError(f"{file}: not an IDX file: its magic number is 0x{magic.hex() or '(empty)'}")
    sizes = stream.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise DataError(f"{file}: truncated in the header; download it again")
    shape = struct.unpack(f">{magic[3]}I", sizes)
    dtype = np.dtype(TYPES[magic[2]])
    expected = math.prod(shape) * dtype.itemsize
    possible = file.stat().st_size * (MAX_DEFLATE_RATIO if file.suffix == ".gz" else 1)
    # One byte more shows a file that is too long; a promise that cannot be kept is not allocated.
    data = stream.read(expected + 1) if expected <= possible else b""
    if len(data) != expected:
        found = f"{'more' if len(data) > expected else 'fewer'} bytes follow"
        raise DataError(f"{file}: the header says {shape}, {expected} bytes, but {found}; download it again")
    return np.frombuffer(data, dtype=dtype).reshape(shape).astype(dtype.newbyteorder("="))


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The splits of the folder or files; reads no file yet."""
    opt.known("idx", options, OPTIONS)
    if isinstance(value, Mapping):
        return Idx(f"idx:{','.join(map(str, value))}", _given(value, base), options)
    folder = opt.path("idx", value, base)
    if not folder.is_dir():
        raise DataError(f"idx: {folder} is not a folder; name single files by {{train: {{inputs: f, labels: f}}}}")
    return Idx(f"idx:{value}", _found(folder), options)


def _given(value: Mapping[str, Any], base: Path) -> dict[str, tuple[Path, Path | None]]:
    files: dict[str, tuple[Path, Path | None]] = {}
    for split, pair in value.items():
        if not isinstance(pair, Mapping) or "inputs" not in pair or set(pair) - {"inputs", "labels"}:
            raise DataError(f"idx: {split}: expected {{inputs: file, labels: file}}, got {pair!r}")
        labels = opt.path("idx", pair["labels"], base) if pair.get("labels") else None
        files[str(split)] = (opt.path("idx", pair["inputs"], base), labels)
    if not files:
        raise DataError("idx: no splits; expected {train: {inputs: file, labels: file}, test: …}")
    return files


def _found(folder: Path) -> dict[str, tuple[Path, Path | None]]:
    files = {}
    for split, prefix in PREFIXES.items():
        inputs = _file(folder, f"{prefix}-images", "idx3-ubyte")
        if inputs:
            files[split] = (inputs, _file(folder, f"{prefix}-labels", "idx1-ubyte"))
    if not files:
        raise DataError(f"idx: {folder} holds none of train-images-idx3-ubyte[.gz], t10k-images-idx3-ubyte[.gz]")
    return files


def _file(folder: Path, stem: str, kind: str) -> Path | None:
    names = [f"{stem}{dot}{kind}{end}" for dot in "-." for end in ("", ".gz")]
    return next((folder / name for name in names if (folder / name).is_file()), None)
