"""Train and test splits of data that comes without them, in which equal examples stand on one side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Array, Examples
from qbench.datasets.splits import split_by_share
from qbench.errors import DataError

OPTIONS = ("seed", "test_share")


def split_without_twins(loader: str, options: Mapping[str, Any], examples: Examples) -> dict[str, Array]:
    """Ascending positions of ``train`` and ``test``: by ``seed`` and ``test_share`` (0 and 0.25), each class in its
    proportion, and examples that are the same to the model (a text that comes twice) never on both sides."""
    first: dict[bytes, int] = {}
    labels, n = examples.labels, len(examples)
    owner = np.array([first.setdefault(b"".join(array[i].tobytes() for array in examples.inputs), i) for i in range(n)])
    originals = np.flatnonzero(owner == np.arange(n))
    if len(originals) < 2:
        raise DataError(f"{loader}: {len(originals)} different examples cannot be split into train and test")
    groups = np.zeros(n) if labels is None or labels.dtype.kind == "f" or labels.ndim > 1 else labels
    share = opt.read_share(loader, options, "test_share", 0.25)
    seed = opt.read_whole(loader, options, "seed", 0, low=0) or 0
    test_groups = split_by_share(groups[originals], test_share=share, seed=seed)
    return {name: np.flatnonzero(np.isin(owner, originals[index])) for name, index in test_groups.items()}
