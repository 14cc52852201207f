"""MNIST and Fashion-MNIST: 60,000 training and 10,000 test images of 28 x 28 grey pixels, 10 classes.

Copies are looked for in ``$QBENCH_DATA/<name>`` and ``$QBENCH_DATA`` (the four IDX files, plain or gzipped), then where
Debian's package puts Fashion-MNIST, then downloaded from the official address.
Sources: http://yann.lecun.com/exdb/mnist/ ; https://github.com/zalandoresearch/fashion-mnist .
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.datasets import fetch
from qbench.datasets import options as opt
from qbench.datasets.base import Dataset, Examples
from qbench.datasets.fetch import Remote
from qbench.datasets.idx_format import find_file, read_idx
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.validation import check_dataset, read_labels, require_split
from qbench.errors import DataError

COUNTS = {"train": 60_000, "test": 10_000}
PREFIXES = {"train": "train", "test": "t10k"}
PARTS = (("images", "idx3-ubyte"), ("labels", "idx1-ubyte"))
SIDE = 28


@dataclass(frozen=True, kw_only=True)
class Source:
    """One of the data sets in MNIST's form: ``files`` by their name without ``.gz`` -> (sha256, bytes) of the gzipped
    file at ``address``; ``mean`` and ``std`` of the training images after scaling to 0..1."""

    name: str
    address: str
    files: Mapping[str, tuple[str, int]]
    mean: float
    std: float
    system: tuple[str, ...]
    advice: str


class Mnist(Dataset):
    """Raw inputs are uint8 of shape (n, 1, 28, 28)."""

    splits = tuple(COUNTS)
    classes = 10

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name
        self.preprocessing = Preprocessing(scale=1 / 255, mean=(source.mean,), std=(source.std,))

    def load(self, split: str) -> Examples:
        """All examples of one split, in the order of the file; ids are ``<name>/<split>/<position>``."""
        require_split(self, split)
        images, labels = (read_idx(self._file(split, *part)) for part in PARTS)
        expected = (COUNTS[split], SIDE, SIDE)
        if images.shape != expected or labels.shape != expected[:1]:
            raise DataError(
                f"{self.name}: split '{split}' has images {images.shape} and labels {labels.shape}, not {expected}: "
                f"another data set lies in its place; use {{idx: folder}} for it, or {self.source.advice}"
            )
        ids = tuple(f"{self.name}/{split}/{i:05d}" for i in range(len(images)))
        examples = Examples(inputs=(images[:, None],), labels=read_labels(labels, self.name), ids=ids)
        check_dataset(self, split, examples)
        return examples

    def _file(self, split: str, what: str, kind: str) -> Path:
        stem = f"{PREFIXES[split]}-{what}"
        for folder in fetch.search_folders(self.name, self.source.system):
            if (copy := find_file(folder, stem, kind)) is not None:
                return copy
        sha256, size = self.source.files[f"{stem}-{kind}"]
        name = f"{stem}-{kind}.gz"
        remote = Remote(name=name, url=self.source.address + name, sha256=sha256, size_bytes=size)
        return fetch.fetch_file(self.name, remote, advice=self.source.advice)


MNIST = Source(
    name="mnist",
    address="https://storage.googleapis.com/cvdf-datasets/mnist/",
    files={
        "train-images-idx3-ubyte": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422),
        "train-labels-idx1-ubyte": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881),
        "t10k-images-idx3-ubyte": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877),
        "t10k-labels-idx1-ubyte": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
    },
    mean=0.1307,
    std=0.3081,
    system=(),
    advice="put its four IDX files into a folder mnist and set QBENCH_DATA to the folder above it",
)
FASHION = Source(
    name="fashion-mnist",
    address="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    files={
        "train-images-idx3-ubyte": ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26_421_880),
        "train-labels-idx1-ubyte": ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515),
        "t10k-images-idx3-ubyte": ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4_422_102),
        "t10k-labels-idx1-ubyte": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148),
    },
    mean=0.2860,
    std=0.3530,
    system=("/usr/share/datasets/fashion-mnist",),
    advice="put its four IDX files into a folder fashion-mnist and set QBENCH_DATA to the folder above it (on Debian: "
    "apt-get install dataset-fashion-mnist)",
)


def open_mnist(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """MNIST; it takes no options. Reads and fetches nothing yet."""
    opt.read(opt.MnistOptions, options)
    return Mnist(MNIST)


def open_fashion_mnist(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """Fashion-MNIST; it takes no options. Reads and fetches nothing yet."""
    opt.read(opt.FashionMnistOptions, options)
    return Mnist(FASHION)
