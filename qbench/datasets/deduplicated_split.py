"""Train and test splits of data that comes without them, in which equal examples stand on one side."""

from __future__ import annotations

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Array, Examples
from qbench.datasets.splits import split_by_share
from qbench.errors import DataError


def split_without_twins(options: opt.Apart, examples: Examples) -> dict[str, Array]:
    """Ascending positions of ``train`` and ``test``: by ``seed`` and ``test_share`` (0 and 0.25), each class in its
    proportion, and examples that are the same to the model (a text that comes twice) never on both sides."""
    first: dict[bytes, int] = {}
    labels, n = examples.labels, len(examples)
    owner = np.array([first.setdefault(b"".join(array[i].tobytes() for array in examples.inputs), i) for i in range(n)])
    originals = np.flatnonzero(owner == np.arange(n))
    if len(originals) < 2:
        raise DataError(f"{options.loader}: {len(originals)} different examples cannot be split into train and test")
    groups = np.zeros(n) if labels is None or labels.dtype.kind == "f" or labels.ndim > 1 else labels
    test_groups = split_by_share(groups[originals], test_share=options.test_share, seed=options.seed)
    return {name: np.flatnonzero(np.isin(owner, originals[index])) for name, index in test_groups.items()}
