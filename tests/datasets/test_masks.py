"""Images with masks: found in pairs, resized and cropped alike, and what is said of what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qbench import registry
from qbench.datasets import masks
from qbench.datasets.base import Dataset
from qbench.errors import DataError, QbenchError
from qbench.metrics import segmentation

N = 8


def write(folder: Path, names: list[str], size: tuple[int, int] = (12, 10), mode: str = "L", **changes: Any) -> None:
    """Images and masks in which each class is a stripe; ``changes``: other masks by name."""
    for place in ("images", "masks"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    for position, name in enumerate(names):
        stripes = np.tile(np.arange(size[0]) // 4, (size[1], 1)).astype(np.uint8)
        stripes[0, position % size[0]] = 255
        Image.fromarray(np.stack([stripes * 40 + position] * 3, axis=2)).save(folder / f"images/{name}.png")
        mask = changes.get(name, Image.fromarray(stripes))
        if mode == "P":
            mask = mask.convert("P")
            mask.putdata(stripes.ravel().tolist())
        mask.save(folder / f"masks/{name}.png")


def opened(folder: Path, **options: Any) -> Dataset:
    """The data set, three classes unless said otherwise."""
    dataset: Dataset = registry.load("dataset", "masks")(".", base=folder, options={"classes": 3, **options})
    return dataset


@pytest.mark.parametrize("mode", ["L", "P"])
def test_each_image_has_its_mask(tmp_path: Path, mode: str) -> None:
    """Whose pixels are classes, -1 where nobody says; ids are the images' paths."""
    write(tmp_path / "train", ["b", "a"], mode=mode)
    write(tmp_path / "val", ["c"], mode=mode)
    dataset = opened(tmp_path)
    assert (dataset.splits, dataset.classes, dataset.count("train")) == (("train", "val"), 3, 2)
    examples = dataset.load("train")
    assert examples.ids == ("train/images/a.png", "train/images/b.png")
    assert examples.inputs[0].shape == (2, 3, 10, 12)
    labels = examples.labels
    assert labels is not None
    assert (labels.dtype, labels.shape) == (np.dtype(np.int16), (2, 10, 12))
    assert labels[0, 5].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert (labels == -1).sum(axis=(1, 2)).tolist() == [1, 1]


def test_a_pixel_that_does_not_count_is_told_as_scores_take_it() -> None:
    """Data sets and metrics do not import each other."""
    assert masks.UNKNOWN == segmentation.UNKNOWN


def test_without_splits_they_are_split_by_seed(tmp_path: Path) -> None:
    """As image folders are; a draw reads only what it takes."""
    write(tmp_path, [f"i{i}" for i in range(N)])
    dataset = opened(tmp_path)
    train, test = dataset.load("train"), dataset.load("test")
    assert (len(train), len(test)) == (6, 2)
    assert not set(train.ids) & set(test.ids)
    assert opened(tmp_path, seed=1).load("test").ids != test.ids
    drawn = dataset.sample("test", 1, 0)
    for file in (tmp_path / "images").iterdir():
        if f"images/{file.name}" not in drawn.ids:
            file.write_bytes(b"no image")
    assert dataset.sample("test", 1, 0).digest() == drawn.digest()


def test_a_mask_is_cropped_as_its_image_is(tmp_path: Path) -> None:
    """The values of the image tell where each pixel comes from; a mask gets no values between two classes."""
    write(tmp_path / "t", ["a"], size=(24, 20))
    examples = opened(tmp_path, size=[8, 8], resize=10, classes=6).load("t")
    assert examples.labels is not None
    image, mask = examples.inputs[0][0, 0].astype(int), examples.labels[0]
    assert set(np.unique(mask)) <= {-1, 0, 1, 2, 3, 4, 5}
    inner = mask[2:]  # below the row of unknown pixels, which the image's resizing spreads
    assert np.abs(image[2:] / 40 - inner).max() < 0.75
    assert inner[0, 0] < inner[0, -1]


def test_ignore_says_which_number_does_not_count(tmp_path: Path) -> None:
    """``null``: none, and then 255 is no class."""
    write(tmp_path / "t", ["a"])
    labels = opened(tmp_path, ignore=2, classes=256).load("t").labels
    assert labels is not None
    assert set(np.unique(labels)) == {-1, 0, 1, 255}
    with pytest.raises(DataError, match=r"1 masks hold other numbers than those of the 3 classes, 0 to 2: 255"):
        opened(tmp_path, ignore=None).load("t")
    with pytest.raises(QbenchError, match="ignore"):
        opened(tmp_path, ignore="no")


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (Image.new("RGB", (12, 10)), "it is RGB: expected a grey or palette image whose pixels are numbers of classes"),
        (Image.new("L", (11, 10)), "11x10 pixels, its image 12x10"),
        (Image.new("I;16", (12, 10), 2**15), "it holds the number 32768; classes are numbers from 0"),
        (Image.new("I;16", (12, 10), 2**15 - 1), r"1 masks hold other numbers .*: 32767"),
        (Image.new("L", (12, 10), 7), r"1 masks hold other numbers than those of the 3 classes, 0 to 2: 7"),
    ],
)
def test_a_mask_that_does_not_fit_is_told(tmp_path: Path, mask: Image.Image, words: str) -> None:
    """With its file, or its example."""
    write(tmp_path / "t", ["a", "b"], b=mask)
    with pytest.raises(DataError, match=words) as told:
        opened(tmp_path).load("t")
    assert "b.png" in str(told.value)


def test_a_damaged_mask_is_told(tmp_path: Path) -> None:
    """All at once, with their files."""
    write(tmp_path / "t", ["a", "b", "c"])
    for name in "ac":
        (tmp_path / f"t/masks/{name}.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"2 of 3 masks cannot be used:\n  .*a\.png: unreadable.*\n  .*c\.png"):
        opened(tmp_path).load("t")


def test_an_image_without_a_mask_is_told(tmp_path: Path) -> None:
    """And a mask without an image, an empty folder, and one without both."""
    write(tmp_path / "t", ["a", "b"])
    (tmp_path / "t/masks/a.png").unlink()
    with pytest.raises(DataError, match="without a partner: a; every image"):
        opened(tmp_path)
    for name in ("images/a.png", "images/b.png", "masks/b.png"):
        (tmp_path / "t" / name).unlink()
    with pytest.raises(DataError, match="no images; every image"):
        opened(tmp_path)
    (tmp_path / "t/images").rmdir()
    with pytest.raises(DataError, match="no folder images/ in it, or in a folder of a split"):
        opened(tmp_path)
    write(tmp_path, ["a"])
    (tmp_path / "images/notes.txt").write_text("")
    (tmp_path / "images/.b.png").write_text("")
    (tmp_path / "images/c.png").mkdir()
    with pytest.raises(DataError, match="one image cannot be split"):
        opened(tmp_path)
    write(tmp_path, ["d"])
    assert [opened(tmp_path).count(split) for split in ("train", "test")] == [1, 1]
    with pytest.raises(DataError, match="is not a folder"):
        opened(tmp_path / "images/a.png")
    write(tmp_path / "u/test", ["a"])
    dataset = opened(tmp_path / "u")
    with pytest.raises(DataError, match="no split 'tst'"):
        dataset.load("tst")


@pytest.mark.parametrize("orientation", range(1, 10))
def test_a_mask_has_the_size_of_its_image_as_it_is_seen(tmp_path: Path, orientation: int) -> None:
    """An image that EXIF lays on its side (5 to 8) is as high as it is wide in its file."""
    for place in ("images", "masks"):
        (tmp_path / "t" / place).mkdir(parents=True)
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (6, 4)).save(tmp_path / "t" / "images" / "a.png", exif=exif)
    upright, other = ((4, 6), (6, 4)) if orientation in (5, 6, 7, 8) else ((6, 4), (4, 6))
    Image.new("L", upright).save(tmp_path / "t" / "masks" / "a.png")
    labels = opened(tmp_path).load("t").labels
    assert labels is not None
    assert labels.shape == (1, upright[1], upright[0])
    Image.new("L", other).save(tmp_path / "t" / "masks" / "a.png")
    with pytest.raises(DataError, match=f"{other[0]}x{other[1]} pixels, its image {upright[0]}x{upright[1]}"):
        opened(tmp_path).load("t")


def test_masks_that_cannot_be_used_are_listed_to_the_fifth(tmp_path: Path) -> None:
    """And counted."""
    write(tmp_path / "t", list("abcdef"))
    for name in "abcdef":
        (tmp_path / f"t/masks/{name}.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="6 of 6 masks cannot be used:") as told:
        opened(tmp_path).load("t")
    assert str(told.value).count("unreadable") == 5
    for name in "abcdef":
        (tmp_path / f"t/masks/{name}.png").unlink()
    with pytest.raises(DataError, match="without a partner: a, b, c, d, e and 1 more; every"):
        opened(tmp_path)


def test_a_mask_of_too_many_pixels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Pillow would only warn, too."""
    write(tmp_path / "t", ["a"], size=(12, 10))
    for limit in (100, 50):  # a warning above it, an error above twice as much
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with pytest.raises(DataError, match="too many pixels, refused as a decompression bomb"):
            masks._read_mask(tmp_path / "t/images/a.png", tmp_path / "t/masks/a.png", opened(tmp_path).shape, None)


@pytest.mark.parametrize("mode", ["1", "I;16"])
def test_a_mask_may_have_any_depth(tmp_path: Path, mode: str) -> None:
    """Its pixels are the numbers of classes; of two levels they are 0 and 1."""
    mask = Image.new(mode, (12, 10), 1)
    write(tmp_path / "t", ["a"], a=mask)
    labels = opened(tmp_path, ignore=None).load("t").labels
    assert labels is not None
    assert np.unique(labels).tolist() == [1]
