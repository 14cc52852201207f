"""Rules of datasets/image_folder.py: which files are images of which class, and which folders are splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from qbench import registry
from qbench.datasets.base import Dataset
from qbench.errors import DataError


def write(folder: Path, *names: str) -> None:
    """Images of those names."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 3), (len(name), 0, 0)).save(folder / name, format="png")


def opened(folder: Path, value: str = ".", **options: Any) -> Dataset:
    """The data set."""
    dataset: Dataset = registry.load("dataset", "image-folder")(value, base=folder, options=options)
    return dataset


@pytest.mark.parametrize(
    "name",
    [
        *("train", "training", "test", "testing", "val", "valid", "validation"),
        *("calib", "calibrate", "calibration", "eval", "evaluate", "evaluation", "TRAIN"),
    ],
)
def test_a_folder_of_images_may_be_a_split(tmp_path: Path, name: str) -> None:
    """By its name, however it is written; beside a folder of another name it is a class."""
    write(tmp_path, f"{name}/a.png")
    dataset = opened(tmp_path)
    assert (dataset.splits, dataset.classes) == ((name,), None)
    write(tmp_path, "cat/a.png", "cat/b.png")
    assert opened(tmp_path).classes == 2


@pytest.mark.parametrize("hidden", [".cache", ".git"])
def test_what_is_hidden_or_no_image_is_passed_over(tmp_path: Path, hidden: str) -> None:
    """Folders and files; endings count however they are written."""
    write(
        tmp_path, "t/cat/a.PNG", "t/cat/b.jpeg", "t/dog/a.webp", "t/dog/.b.png", f"t/{hidden}/a.png", f"{hidden}/a.png"
    )
    (tmp_path / "t" / "cat" / "c.txt").write_text("")
    (tmp_path / "t" / "cat" / "d.png").mkdir()
    dataset = opened(tmp_path)
    assert (dataset.splits, dataset.classes, dataset.count("t")) == (("t",), 2, 3)
    assert dataset.load("t").ids == ("t/cat/a.PNG", "t/cat/b.jpeg", "t/dog/a.webp")
    labels = dataset.known_labels("t")
    assert labels is not None
    assert labels.tolist() == [0, 0, 1]


def test_a_class_has_one_label_in_all_splits(tmp_path: Path) -> None:
    """Also one that a split has no folder of; a folder below that has no image is no split."""
    write(tmp_path, "a/cat/1.png", "a/dog/1.png", "b/dog/1.png", "b/eel/1.png")
    (tmp_path / "notes" / "inner").mkdir(parents=True)
    dataset = opened(tmp_path)
    assert dataset.splits == ("a", "b")
    assert [list(dataset.known_labels(split)) for split in "ab"] == [[0, 1], [1, 2]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "classes", "labels"),
    [
        (("0", "2"), 3, [0, 2]),
        (("00", "02"), 3, [0, 2]),
        (("0", "3"), 3, "0 to 2; these are not: 3; or give classes a file of names"),
        (("0", "-1"), 3, "these are not: -1"),
        (("0", "00"), 3, "0, 00 are one class; keep one folder"),
        (("a", "b"), ["b", " a "], [1, 0]),
        (("a", "b"), ["b", "c"], "no such class as the folders a; list it"),
        (("a", "b"), ["b", "a", "b"], "named twice: b"),
    ],
)
def test_classes_say_which_output_a_folder_is(tmp_path: Path, names: Any, classes: Any, labels: Any) -> None:
    """By number, or by place in a list that may have more."""
    write(tmp_path, *(f"t/{name}/1.png" for name in names))
    if isinstance(labels, str):
        with pytest.raises(DataError, match=labels):
            opened(tmp_path, classes=classes)
        return
    dataset = opened(tmp_path, classes=classes)
    assert list(dataset.known_labels("t")) == labels  # type: ignore[arg-type]
    assert dataset.classes == (classes if isinstance(classes, int) else len(classes))


def test_a_file_of_classes_has_a_name_on_each_line(tmp_path: Path) -> None:
    """An empty one and one that is no text are told."""
    write(tmp_path, "t/a/1.png")
    (tmp_path / "names.txt").write_text("b\n a\n")
    assert list(opened(tmp_path, classes="names.txt").known_labels("t")) == [1]  # type: ignore[arg-type]
    (tmp_path / "names.txt").write_text("")
    with pytest.raises(DataError, match=r"names\.txt is empty; expected a name on each line"):
        opened(tmp_path, classes="names.txt")
    (tmp_path / "names.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"names\.txt is no text file with one name a line"):
        opened(tmp_path, classes="names.txt")


def test_a_split_that_there_is_not_is_refused(tmp_path: Path) -> None:
    """Whichever way it is asked for, with those that there are."""
    write(tmp_path, "a/1.png", "b/1.png")
    dataset = opened(tmp_path)
    for ask in dataset.load, dataset.count, lambda split: dataset.sample(split, None, 0):
        with pytest.raises(DataError, match="no split 'c'; there are: train, test"):
            ask("c")


def test_two_images_are_split_and_one_is_not(tmp_path: Path) -> None:
    """Each side needs one; with classes they keep their proportion."""
    write(tmp_path, "1.png")
    with pytest.raises(DataError, match="one image cannot be split into train and test"):
        opened(tmp_path)
    write(tmp_path, "2.png")
    dataset = opened(tmp_path)
    assert [dataset.count(split) for split in dataset.splits] == [1, 1]
    write(tmp_path / "more", *(f"{name}/{place}.png" for name in "ab" for place in range(4)))
    for seed in range(4):
        labels = opened(tmp_path, "more", seed=seed, test_share=0.5).known_labels("test")
        assert labels is not None
        assert sorted(labels.tolist()) == [0, 0, 1, 1]
