"""Rendered scenes: the same everywhere, with boxes and masks that are those of their objects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qbench import registry
from qbench.datasets import shapes
from qbench.datasets.base import Dataset
from qbench.errors import DataError


def opened(value: str | None = None) -> Dataset:
    """The data set."""
    dataset: Dataset = registry.load("dataset", "shapes")(value, base=Path(), options={})
    return dataset


def test_scenes_are_the_same_everywhere() -> None:
    """By their digest: weights that were trained on them are found again."""
    examples = opened().sample("test", 20, 0)
    assert examples.digest()[:16] == "4128ade3fb759a18"


def test_boxes_lie_around_the_pixels_of_the_mask() -> None:
    """Of an object that no other one hides; classes are one more in a mask, whose 0 is the background."""
    boxes, masks = (opened(kind).sample("test", 60, 0) for kind in ("boxes", "masks"))
    assert np.array_equal(boxes.inputs[0], masks.inputs[0])
    labels, alone = np.asarray(boxes.labels), 0
    for rows, mask in zip(labels, np.asarray(masks.labels), strict=True):
        objects = rows[rows[:, 4] >= 0]
        if len(objects) != 1:
            continue
        alone += 1
        down, right = np.nonzero(mask)
        assert objects[0, :4].tolist() == [right.min(), down.min(), right.max() + 1, down.max() + 1]
        assert set(np.unique(mask).tolist()) == {0, int(objects[0, 4]) + 1}
    assert alone > 5


def test_splits_share_no_scene_and_classes_are_even() -> None:
    """Each of the three shapes is about a third."""
    train, test = (opened().sample(split, 200, 0) for split in ("train", "test"))
    assert not {image.tobytes() for image in train.inputs[0]} & {image.tobytes() for image in test.inputs[0]}
    chosen = np.asarray(train.labels)[..., 4].ravel()
    shares = np.bincount(chosen[chosen >= 0].astype(int)) / (chosen >= 0).sum()
    assert shares.tolist() == pytest.approx([1 / 3] * 3, abs=0.06)


def test_only_two_kinds_of_labels_are_there() -> None:
    """Boxes where nothing is said."""
    assert (opened().name, opened("masks").classes) == ("shapes:boxes", 1 + len(shapes.SHAPES))
    with pytest.raises(DataError, match=r"expected boxes or masks, got 'polygons'; write \{shapes: boxes\}"):
        opened("polygons")
