"""Lines of text from a CSV of images and texts: what becomes of a line, and what is said of a bad file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qbench import registry
from qbench.datasets.base import Dataset
from qbench.errors import DataError
from qbench.metrics.texts import CER, read_text


def opened(folder: Path, value: str = "lines.csv", **options: Any) -> Dataset:
    """The data set."""
    dataset: Dataset = registry.load("dataset", "text-lines")(value, base=folder, options=options)
    return dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four images of different lengths, half as high as the network takes them, and their texts."""
    for name, width, colour in (("a", 40, 10), ("b", 160, 60), ("c", 300, 110), ("d", 80, 200)):
        (tmp_path / "img").mkdir(exist_ok=True)
        Image.new("RGB", (width, 24), (colour, 0, 255 - colour)).save(tmp_path / "img" / f"{name}.png")
    rows = ["image,text,split", "img/a.png,ab,test", "img/b.png, é 3 ,test", "img/c.png,,test", "img/d.png,long,train"]
    (tmp_path / "lines.csv").write_text("\n".join([*rows, ""]), encoding="utf-8")
    return tmp_path


def test_lines_are_padded_as_their_network_expects_it(folder: Path) -> None:
    """Twice as high here; a shorter line lies at the left and what is behind it becomes 0, a longer one is squeezed."""
    dataset = opened(folder)
    examples = dataset.load("test")
    images = examples.inputs[0]
    assert images.shape == (3, 3, 48, 320)
    assert examples.ids == ("img/a.png", "img/b.png", "img/c.png")
    assert [
        int((image[0] == colour).all(axis=0).sum()) for image, colour in zip(images, (10, 60, 110), strict=True)
    ] == [
        80,
        320,
        320,
    ]
    (values,) = dataset.preprocessing((images,))
    assert values[0, :, :, 80:] == pytest.approx(np.zeros((3, 48, 240)), abs=1 / 250)
    assert values[0, 0, 0, 0] == pytest.approx(10 / 127.5 - 1, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "behind"),
    [
        ({"scale": 1, "mean": 0, "std": 1}, [0, 0, 0]),
        ({"mean": [0.2, 0.5, 0.9]}, [51, 128, 230]),
        ({"mean": [0.2, 0.5, 0.9], "order": "bgr"}, [230, 128, 51]),
        ({"mean": 7, "std": 1}, [255, 255, 255]),
    ],
)
def test_padding_is_the_byte_that_becomes_0(folder: Path, options: dict[str, Any], behind: list[int]) -> None:
    """By scale and mean, in the order of the colours; the nearest one where none does."""
    assert opened(folder, **options).load("test").inputs[0][0, :, 0, -1].tolist() == behind


def test_stretch_makes_every_line_as_wide(folder: Path) -> None:
    """And grey, channels last and another size are those of other images."""
    images = opened(folder, fit="stretch", size=[32, 100], channels=1, layout="nhwc").load("test").inputs[0]
    assert images.shape == (3, 32, 100, 1)
    assert all(len(np.unique(image)) == 1 for image in images)


def test_texts_are_code_points_as_wide_as_the_split_has_them(folder: Path) -> None:
    """An empty one is a row of -1; white space at the ends does not count."""
    dataset = opened(folder)
    labels = np.asarray(dataset.load("test").labels)
    assert [read_text(row) for row in labels] == ["ab", "é 3", ""]
    assert np.asarray(dataset.sample("test", 1, 0).labels).shape == (1, 3)


def test_an_empty_reference_counts_what_was_written_there(folder: Path) -> None:
    """Over the letters of the others, as jiwer counts it; where all are empty there is no rate."""
    labels = np.asarray(opened(folder).load("test").labels)
    written = labels.copy()
    assert CER.value(written, labels) == 0
    written[2, 0] = ord("x")
    assert CER.value(written, labels) == pytest.approx(1 / 5)
    assert CER.problem(written[2:], labels[2:], None) == "all texts of the labels are empty"


def test_transparent_pixels_are_white_paper(folder: Path) -> None:
    """A line that was cut out keeps its letters."""
    cut = Image.new("RGBA", (40, 24), (0, 0, 0, 0))
    cut.paste((0, 0, 0, 255), (0, 0, 20, 24))
    cut.save(folder / "img" / "a.png")
    line = opened(folder).load("test").inputs[0][0, 0, 20, :80]
    assert (line[0], line[-1]) == (0, 255)


def test_without_a_column_of_splits_an_image_is_on_one_side(folder: Path) -> None:
    """Also one that is named twice."""
    rows = [f"img/{name}.png,{text}" for name, text in (("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("a", "5"))]
    (folder / "lines.csv").write_text("\n".join(["image,text", *rows, ""]))
    for seed in range(6):
        dataset = opened(folder, test_share=0.5, seed=seed)
        sides = [set(dataset.load(split).ids) for split in ("train", "test")]
        assert not sides[0] & sides[1]
        assert sum(dataset.count(split) for split in dataset.splits) == 5


def test_a_folder_has_a_file_a_split(folder: Path) -> None:
    """Each with paths below it."""
    (folder / "lines.csv").unlink()
    (folder / "train.tsv").write_text("image\ttext\nimg/a.png\ta, b\n")
    (folder / "test.csv").write_text("image,text\nimg/b.png,c\n")
    dataset = opened(folder, ".")
    assert dataset.splits == ("test", "train")
    assert read_text(np.asarray(dataset.load("train").labels)[0]) == "a, b"


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("file,text\nimg/a.png,a\n", {}, "no column 'image'; the first line names file, text; write image:, text: or"),
        ("image,label\nimg/a.png,a\n", {}, "no column 'text'; the first line names image, label; write image:, text:"),
        ("image,text\nimg/a.png,a\nimg/x.png,b\n", {}, "1 of 2 images are not below .*: line 3: img/x.png; write each"),
        ("image,text\n../a.png,a\nimg/b.png,b\n", {}, "1 of 2 images are not below .*: line 2: ../a.png"),
        ("image,text\nimg/a.png,a\n", {}, "one image cannot be split into train and test"),
        ("image,text\n,a\nimg/b.png,b\n", {}, r":2: there is no text in column 'image'; remove the line"),
        ("image,text\n", {}, "it has a first line with names, but no rows"),
        ("image,text,split\nimg/a.png,a,\nimg/b.png,a,test\n", {}, r":2: column 'split' is empty; name the split"),
        ("image,text\n", {"fit": "letterbox"}, "text-lines: fit: expected one of pad, stretch, got 'letterbox'"),
        ("image,text\n", {"resize": 50, "size": [48, 320]}, "resize: a crop would cut letters"),
        ("image,text\n", {"size": None}, "size: expected the height and width that the network takes"),
    ],
)
def test_a_bad_file_is_named_with_what_to_do(folder: Path, text: str, options: dict[str, Any], words: str) -> None:
    """In one message, with the line."""
    (folder / "lines.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        opened(folder, **options)


def test_damaged_images_are_listed(folder: Path) -> None:
    """When they are read."""
    (folder / "img" / "a.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"split 'test': 1 of 3 images cannot be used:\n  .*a.png: unreadable"):
        opened(folder).load("test")
