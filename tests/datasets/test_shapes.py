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


@pytest.mark.parametrize(
    ("kind", "split", "digest"), [("boxes", "train", "f5ff94001a1ce84c"), ("masks", "test", "6e6883f6b890e9d3")]
)
def test_no_scene_ever_changes(kind: str, split: str, digest: str) -> None:
    """Also those in which objects find no room, or colours are hard to tell apart."""
    assert opened(kind).sample(split, 400, 1).digest()[:16] == digest


def test_so_many_scenes_are_there() -> None:
    """The first of train has seed 0, the first of test a million."""
    dataset = opened()
    assert [dataset.count(split) for split in ("train", "test")] == [2000, 500]
    with pytest.raises(DataError, match="shapes:boxes: split 'test': .*501"):
        dataset.sample("test", 501, 0)
    for split, first in (("train", 0), ("test", 1_000_000)):
        examples = dataset.sample(split, 3, 0)
        for image, name in zip(examples.inputs[0], examples.ids, strict=True):
            number = int(name.removeprefix(f"{split}/"))
            assert name == f"{split}/{number:04d}"
            assert np.array_equal(image, shapes._draw_scene(np.random.RandomState(first + number))[0])
    with pytest.raises(DataError, match="no split 'val'"):
        dataset.count("val")


@pytest.mark.parametrize(
    ("first", "second", "share"),
    [((0, 0, 4, 4), (4, 0, 8, 4), 0), ((0, 0, 4, 4), (2, 0, 6, 4), 0.5), ((0, 0, 8, 8), (6, 6, 10, 10), 0.25),
     ((0, 0, 8, 8), (2, 2, 4, 4), 1), ((0, 0, 4, 4), (6, 6, 8, 8), 0)],
)  # fmt: skip
def test_boxes_overlap_by_their_share_of_the_smaller(
    first: tuple[int, ...], second: tuple[int, ...], share: float
) -> None:
    """Whichever of the two comes first."""
    boxes = np.array(first), np.array(second)
    assert shapes._overlap(*boxes) == shapes._overlap(*boxes[::-1]) == share
