"""The photos that a package carries: which split they are in, their labels, and where crops of them lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qbench import registry
from qbench.datasets import photos
from qbench.datasets.base import Dataset
from qbench.datasets.photos import _places
from qbench.errors import DataError


def opened(value: Any = None, base: Path = Path(), **options: Any) -> Dataset:
    """The data set."""
    dataset: Dataset = registry.load("dataset", "imagenet")(value, base=base, options=options)
    return dataset


def write(folder: Path, count: int) -> None:
    """Photos of 6 x 4 pixels whose grey is their number, each row and column a step brighter; class 100 and above."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        grey = np.arange(6)[None, :] * 10 + np.arange(4)[:, None] * 60 + number
        photo = Image.fromarray(np.stack([grey] * 3, axis=2).astype(np.uint8))
        photo.save(folder / f"imagenet_{number:02d}_{100 + number}.jpg", format="png")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that is to carry the photos; its folder of them."""
    (tmp_path / "carrier_of_photos").mkdir()
    (tmp_path / "carrier_of_photos" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(photos, "PACKAGE", "carrier_of_photos")
    return tmp_path / "carrier_of_photos" / "data"


def test_crops_lie_in_the_middle_and_in_each_corner() -> None:
    """Of what is left over below and to the right: none is moved by a pixel."""
    assert list(_places(10, 21)) == [
        ("centre", 5, 10), ("top-left", 0, 0), ("top-right", 0, 21), ("bottom-left", 10, 0), ("bottom-right", 10, 21),
    ]  # fmt: skip


def test_every_other_photo_is_tested(package: Path) -> None:
    """The second, the fourth and so on, whole; a photo's class stands at the end of its name, of 1,000."""
    write(package, 20)
    dataset = opened(size=[4, 6], resize=4)
    examples = dataset.load("test")
    assert (dataset.classes, dataset.splits) == (1000, ("train", "test"))
    assert examples.labels is not None
    assert examples.labels.tolist() == [100 + number for number in range(1, 20, 2)]
    assert examples.ids == tuple(f"imagenet_{number:02d}_{100 + number}.jpg" for number in range(1, 20, 2))
    assert examples.inputs[0].shape == (10, 3, 4, 6)
    assert examples.inputs[0][:, 0, 0, 0].tolist() == list(range(1, 20, 2))


def test_the_others_are_ten_crops_each(package: Path) -> None:
    """Centre and corners of the square of its short side, each mirrored behind it; photo by photo."""
    write(package, 20)
    examples = opened(size=[2, 3], resize=4).load("train")
    assert examples.inputs[0].shape == (100, 3, 2, 3)
    assert examples.labels is not None
    assert examples.labels.tolist() == [100 + number for number in range(0, 20, 2) for _ in range(10)]
    names = ("centre", "top-left", "top-right", "bottom-left", "bottom-right")
    assert examples.ids[10:20] == tuple(
        f"imagenet_02_102.jpg#{name}{mirrored}" for name in names for mirrored in ("", "-mirrored")
    )
    square = np.arange(4)[:, None] * 60 + np.arange(1, 5)[None, :] * 10 + 2  # of the second photo, its middle
    for number, (top, left) in enumerate(((1, 0), (0, 0), (0, 1), (2, 0), (2, 1))):
        expected = square[top : top + 2, left : left + 3]
        plain, mirrored = (examples.inputs[0][10 + 2 * number + part, 1] for part in (0, 1))
        assert plain.tolist() == expected.tolist()
        assert mirrored.tolist() == expected[:, ::-1].tolist()


@pytest.mark.parametrize(("size", "resize", "side"), [(3, 4, 4), (3, None, 3), ([2, 4], None, 4), ([4, 2], None, 4)])
def test_crops_are_of_a_square_that_holds_them(
    package: Path, size: Any, resize: int | None, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the short side that is asked for, or else of the longer side of a crop."""
    write(package, 20)
    asked = []
    read = photos.read_images

    def note(files: Any, shape: Any, where: str) -> Any:
        asked.append((shape.size, shape.resize, where))
        return read(files, shape, where)

    monkeypatch.setattr(photos, "read_images", note)
    opened(size=size, resize=resize).load("train")
    assert asked == [((side, side), None, "imagenet: split 'train'")]


@pytest.mark.parametrize(("count", "said"), [(19, "carries 19 of 20 photos"), (21, "carries 21 of 20 photos")])
def test_another_number_of_photos_is_told(package: Path, count: int, said: str) -> None:
    """With what brings them, and the other way."""
    write(package, count)
    with pytest.raises(DataError, match=rf"imagenet: carrier_of_photos {said}; .* brings them \(carrier_of_photos 3"):
        opened()


def test_without_the_package_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the folder of one's own that would do."""
    monkeypatch.setattr(photos, "PACKAGE", "no_such_package")
    with pytest.raises(DataError, match=r"no_such_package is not installed; .* or name a folder of your own: \{imag"):
        opened()


@pytest.mark.parametrize("option", ["channels", "layout", "seed", "test_share", "classes"])
def test_an_option_of_folders_is_for_a_folder(package: Path, option: str) -> None:
    """Whether or not it says what would be anyway."""
    write(package, 20)
    value = {"channels": 3, "layout": "nchw", "seed": 0, "test_share": 0.25, "classes": 1000}[option]
    with pytest.raises(DataError, match=rf"imagenet: {option} is for a folder of your own: .*, {option}: …"):
        opened(**{option: value})


def test_a_folder_of_ones_own_has_its_classes_said(tmp_path: Path) -> None:
    """Where it has other than 1,000; without classes nothing is to be matched."""
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            write(tmp_path / split / name, 1)
    with pytest.raises(
        DataError, match=r"imagenet: \. has 2 class folders, which cannot be matched with the model's 1000"
    ):
        opened(".", tmp_path)
    dataset = opened(".", tmp_path, classes=["wolf", "dog", "cat"], size=4, resize=4)
    assert dataset.classes == 3
    labels = dataset.load("test").labels
    assert labels is not None
    assert labels.tolist() == [2, 1]
    flat = tmp_path / "flat"
    write(flat, 4)
    assert opened("flat", tmp_path).classes is None
