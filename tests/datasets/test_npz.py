"""Rules of datasets/npz.py: how a file without splits is parted, and which shapes its layouts have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qbench import registry
from qbench.datasets.base import Dataset
from qbench.errors import DataError


def opened(folder: Path, arrays: dict[str, Any], **options: Any) -> Dataset:
    """The data set of a file with these arrays."""
    np.savez(folder / "d.npz", **arrays)
    dataset: Dataset = registry.load("dataset", "npz")("d.npz", base=folder, options=options)
    return dataset


@pytest.mark.parametrize("kind", ["i8", "u1", "f8", None])
def test_classes_alone_are_split_in_their_proportion(tmp_path: Path, kind: str | None) -> None:
    """Numbers with a point are values: each would be a class of its own."""
    labels = np.repeat([0, 1], [30, 10])
    arrays: dict[str, Any] = {"inputs": np.arange(40.0)[:, None]}
    if kind is not None:
        arrays["labels"] = labels.astype(kind)
    dataset = opened(tmp_path, arrays, test_share=0.2, seed=3)
    examples = dataset.load("test")
    chosen = examples.inputs[0].ravel().astype(int)
    even = opened(tmp_path, {"inputs": np.arange(40.0)[:, None]}, test_share=0.2, seed=3).load("test").inputs[0]
    assert (np.bincount(labels[chosen]).tolist() == [6, 2]) or kind in ("f8", None)
    assert (chosen.tolist() == even.ravel().astype(int).tolist()) == (kind in ("f8", None))
    assert examples.ids == tuple(f"inputs[{place}]" for place in chosen)


@pytest.mark.parametrize(
    ("layout", "shape", "expected"),
    [
        ("as-is", (2, 5, 4, 3), (2, 5, 4, 3)),
        ("as-is", (2,), (2,)),
        ("nchw", (2, 3, 5, 4), (2, 3, 5, 4)),
        ("nhwc", (2, 5, 4, 3), (2, 3, 5, 4)),
        ("hw", (2, 5, 4), (2, 1, 5, 4)),
        ("nchw", (2, 3, 5), None),
        ("nhwc", (2, 5, 4), None),
        ("hw", (2, 5, 4, 3), None),
    ],
)
def test_a_layout_says_how_images_lie_in_the_file(
    tmp_path: Path, layout: str, shape: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    """As it is, an array may have any shape; labels are not turned."""
    dataset = opened(tmp_path, {"t_inputs": np.ones(shape), "t_labels": [0, 1]}, stored_layout=layout)
    if expected is None:
        with pytest.raises(DataError, match=rf"d\.npz: t_inputs: stored_layout '{layout}' has"):
            dataset.load("t")
        return
    assert dataset.load("t").inputs[0].shape == expected


def test_a_split_without_labels_has_none(tmp_path: Path) -> None:
    """Though another has; ids are the split and the place."""
    dataset = opened(tmp_path, {"a_inputs": np.ones((2, 1)), "b_inputs": np.ones((2, 1)), "b_labels": [1, 0]})
    first, second = dataset.load("a"), dataset.load("b")
    assert (first.labels, first.ids) == (None, ("a[0]", "a[1]"))
    assert second.labels is not None
    assert second.labels.tolist() == [1, 0]
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="folder is a folder; for folders of images use image-folder"):
        registry.load("dataset", "npz")("folder", base=tmp_path, options={})
