"""Train and test splits of data that comes without them: by seed, with every class in its proportion."""

from __future__ import annotations

import numpy as np

from qbench.datasets.base import Array, Examples
from qbench.datasets.options import SplitOptions
from qbench.errors import DataError

SPLITS = ("train", "test")


def split_stratified(groups: Array, *, test: int, seed: int) -> dict[str, Array]:
    """Ascending positions of ``train`` and ``test``, where exactly ``test`` go to test.

    ``groups`` (length n) holds each example's class; each class gives its share, rounded by largest remainder.
    """
    n = len(groups)
    if not 0 < test < n:
        raise DataError(f"{n} examples cannot be split into train and test with {test} for test")
    # The old generator: its stream is frozen for good (NEP 19), that of default_rng may change.
    random = np.random.RandomState(seed % 2**32)
    classes, counts = np.unique(groups, return_counts=True)
    exact = counts * (test / n)
    quota = np.floor(exact).astype(int)
    most_cut = np.argsort(quota - exact, kind="stable")
    quota[most_cut[: test - quota.sum()]] += 1
    positions = [random.permutation(np.flatnonzero(groups == c))[:q] for c, q in zip(classes, quota, strict=True)]
    in_test = np.zeros(n, dtype=bool)
    in_test[np.concatenate(positions)] = True
    return {"train": np.flatnonzero(~in_test), "test": np.flatnonzero(in_test)}


def split_by_share(groups: Array, *, test_share: float, seed: int) -> dict[str, Array]:
    """``split_stratified`` with a share of the examples for test (at least one in each split)."""
    n = len(groups)
    return split_stratified(groups, test=min(max(1, round(n * test_share)), n - 1), seed=seed)


def split_without_twins(options: SplitOptions, examples: Examples) -> dict[str, Array]:
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
