"""Train and test splits of data that comes without them: by seed, with every class in its proportion."""

from __future__ import annotations

import numpy as np

from qbench.datasets.base import Array
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
