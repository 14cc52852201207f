"""scikit-learn's digits: 1,797 images of 8 x 8 pixels, 10 classes; 1,347 for training, 450 for testing."""

from __future__ import annotations

import functools
import gzip
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.splits import SPLITS, split_stratified
from qbench.datasets.validation import check_dataset, require_split

TEST = 450
SEED = 0


class Digits(Dataset):
    """Raw inputs are uint8 of shape (n, 1, 8, 8), 0 to 16, as in the original data set (UCI, 1998)."""

    name = "digits"
    splits = SPLITS
    classes = 10
    # Mean and standard deviation of the training split after scaling to 0..1.
    preprocessing = Preprocessing(scale=1 / 16, mean=(0.306,), std=(0.377,))

    def load(self, split: str) -> Examples:
        """All examples of ``train`` or ``test``; ids are positions in scikit-learn's copy."""
        require_split(self, split)
        images, labels = _read()
        index = split_stratified(labels, test=TEST, seed=SEED)[split]
        ids = tuple(f"digits/{i:04d}" for i in index)
        examples = Examples(inputs=(images[index],), labels=labels[index], ids=ids)
        check_dataset(self, split, examples)
        return examples


@functools.cache
def _read() -> tuple[Array, Array]:
    """Images and labels from scikit-learn's file, which is read without it: it takes half a second to import."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("scikit-learn, which brings the digits, is not installed")
    file = Path(package.origin).with_name("datasets") / "data" / "digits.csv.gz"
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    table = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    return table[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8), table[:, -1]


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The digits; they take no options."""
    opt.read(opt.DigitsOptions, options)
    return Digits()
