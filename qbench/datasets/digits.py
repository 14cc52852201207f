"""scikit-learn's digits: 1,797 images of 8 x 8 pixels, 10 classes; 1,347 for training, 450 for testing."""

from __future__ import annotations

import functools
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
    from sklearn.datasets import load_digits

    data = load_digits()
    return data.images.astype(np.uint8)[:, None], data.target.astype(np.int64)


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The digits; they take no options."""
    opt.read(opt.DigitsOptions, options)
    return Digits()
