"""Images with boxes in COCO's form: found, fitted with their boxes, and what is said of what does not fit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from qbench import registry
from qbench.datasets.base import Dataset
from qbench.errors import DataError, QbenchError
from qbench.files import regular_file

WHITE, SIDES = 255, (40, 20)


def write(folder: Path, count: int = 4, name: str = "instances.json", where: str = "images", **changes: Any) -> Path:
    """Black images with a white object each, and annotations of them; ``changes`` replace parts of these."""
    (folder / where).mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for number in range(count):
        pixels = np.zeros((SIDES[1], SIDES[0], 3), np.uint8)
        pixels[4:12, 10 + number : 30 + number] = WHITE
        Image.fromarray(pixels).save(folder / where / f"{number}.png")
        images.append({"id": 10 + number, "file_name": f"{number}.png", "width": SIDES[0], "height": SIDES[1]})
        box = [10 + number, 4, 20, 8]
        annotations.append({"id": number, "image_id": 10 + number, "category_id": 7 if number % 2 else 90, "bbox": box})
    content = {"images": images, "annotations": annotations, "categories": [{"id": 90}, {"id": 7}], **changes}
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(content))
    return folder


def opened(folder: Path, value: str = "instances.json", **options: Any) -> Dataset:
    """The data set, images of 32 x 32 pixels unless said otherwise."""
    dataset: Dataset = registry.load("dataset", "coco")(value, base=folder, options={"size": 32, **options})
    return dataset


def bounds(image: np.ndarray) -> list[int]:
    """x1, y1, x2, y2 of what is bright in an image (3, height, width)."""
    down, right = np.nonzero(image[0] > WHITE * 3 // 4)
    return [int(right.min()), int(down.min()), int(right.max()) + 1, int(down.max()) + 1]


@pytest.mark.parametrize("fit", ["letterbox", "stretch"])
def test_boxes_go_where_their_objects_go(tmp_path: Path, fit: str) -> None:
    """The image is whole in what the network is given, and a box lies around its object there, to a pixel."""
    examples = opened(write(tmp_path), fit=fit).load("train")
    labels = examples.labels
    assert labels is not None
    assert (labels.dtype, labels.shape[1:]) == (np.dtype(np.float32), (1, 6))
    assert labels[:, 0, 5].tolist() == [0] * len(labels)
    for image, (box,) in zip(examples.inputs[0], labels, strict=True):
        assert np.abs(box[:4] - bounds(image)).max() <= 1.5
    corner = examples.inputs[0][0, :, 0, 0].tolist()
    assert corner == ([114] * 3 if fit == "letterbox" else [0] * 3)


def test_classes_are_the_categories_in_the_order_of_their_ids(tmp_path: Path) -> None:
    """7 is class 0 and 90 is class 1, whatever stands first in the file."""
    dataset = opened(write(tmp_path))
    assert dataset.classes == 2
    for split in dataset.splits:
        examples = dataset.load(split)
        assert examples.labels is not None
        expected = [0 if int(name.partition(".")[0]) % 2 else 1 for name in examples.ids]
        assert examples.labels[:, 0, 4].tolist() == expected


@pytest.mark.parametrize(
    ("name", "where", "split"),
    [
        ("annotations/instances_val2017.json", "val2017", "val2017"),
        ("valid/_annotations.coco.json", "valid", "valid"),
    ],
)
def test_a_folder_has_its_splits(tmp_path: Path, name: str, where: str, split: str) -> None:
    """As COCO comes, and as Roboflow exports it."""
    dataset = opened(write(tmp_path, name=name, where=where), ".")
    assert (dataset.splits, dataset.count(split)) == ((split,), 4)
    assert len(dataset.load(split)) == 4


def test_an_image_without_a_box_and_a_crowd_are_kept(tmp_path: Path) -> None:
    """An empty image can only be wrong; of a crowd the sixth column tells."""
    crowd = {"image_id": 11, "category_id": 7, "bbox": [1.5, 2, 30, 10], "iscrowd": 1}
    dataset = opened(write(tmp_path, annotations=[crowd]))
    rows = np.concatenate([np.asarray(dataset.load(split).labels) for split in dataset.splits])
    assert sorted(rows[:, 0, 4].tolist()) == [-1, -1, -1, 0]
    assert rows[rows[:, 0, 4] == 0][0, 0, 5] == 1


def box(**changes: Any) -> dict[str, Any]:
    return {"annotations": [{"id": 5, "image_id": 10, "category_id": 7, "bbox": [1, 2, 3, 4], **changes}]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (box(bbox=[50, 2, 3, 4]), r"annotation 5: its box \[50, 2, 3, 4\] lies outside its image of 40 x 20"),
        (box(bbox=[1, 2, -3, 4]), "its box is -3 wide and 4 high"),
        (box(bbox=[1, 2, 3]), r"its bbox is \[1, 2, 3\]; expected \[x, y, width, height\]"),
        (box(bbox=[1, 2, float("nan"), 4]), r"expected \[x, y, width, height\]"),
        (box(image_id=99), "there is no image 99"),
        (box(category_id=3), "there is no category 3"),
        (box(category_id=[3]), r"there is no category \[3\]"),
        (
            {"images": [{"id": 10, "file_name": "../images/0.png"}, {"id": 1, "file_name": "1.png"}]},
            "1 images are not in",
        ),
        ({"images": [{"id": 10}]}, "one of its images has no file_name"),
        ({"categories": []}, "expected categories with whole numbers as ids"),
        ({"annotations": 3}, "expected COCO's lists of objects: images, annotations, categories"),
    ],
)
def test_what_cannot_be_used_is_told(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """With the file and the annotation; a name that leads out of the folder is no image."""
    with pytest.raises(DataError, match=words) as caught:
        opened(write(tmp_path, **changes))
    assert "instances.json" in str(caught.value)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([39, 19, 5, 5], None),
        ([-1, -1, 1.5, 1.5], None),
        ([3, 3, 0, 0], None),
        ([40, 1, 2, 2], "lies outside"),
        ([1, 20, 2, 2], "lies outside"),
        ([-2, 1, 2, 2], "lies outside"),
        ([1, -2, 2, 2], "lies outside"),
        ([1, 2, 3, -4], "its box is 3 wide and -4 high"),
    ],
)
def test_a_box_shares_a_pixel_with_its_image(tmp_path: Path, numbers: list[float], said: str | None) -> None:
    """Each edge counts; where the annotations say no size of the image, its box may lie anywhere."""
    write(tmp_path, **box(bbox=numbers))
    if said is None:
        opened(tmp_path)
        return
    with pytest.raises(DataError, match=said):
        opened(tmp_path)
    images = [{"id": 10 + number, "file_name": f"{number}.png", "width": 0, "height": 20} for number in range(4)]
    if "outside" in said:
        opened(write(tmp_path, images=images, **box(bbox=numbers)))


@pytest.mark.parametrize(("bad", "more"), [(5, ""), (7, "\n  and 2 more")])
def test_what_cannot_be_used_is_listed_to_the_fifth(tmp_path: Path, bad: int, more: str) -> None:
    """The others are counted."""
    wrong = [{"id": number, "image_id": 99, "category_id": 7, "bbox": [1, 2, 3, 4]} for number in range(bad)]
    lines = "".join(f"\n  annotation {number}: there is no image 99" for number in range(5))
    with pytest.raises(DataError, match=re.escape(f"it cannot be used:{lines}{more}") + "$"):
        opened(write(tmp_path, annotations=wrong))


def test_images_lie_beside_their_annotations_or_where_the_suite_says(tmp_path: Path) -> None:
    """In ``images`` beside the file or its folder, or in the folder that is named, which is for a file alone."""
    write(tmp_path, name="annotations/all.json")
    assert len(opened(tmp_path, "annotations/all.json").load("train")) == 3
    (tmp_path / "images").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="4 images are not in"):
        opened(tmp_path, "annotations/all.json")
    assert len(opened(tmp_path, "annotations/all.json", images="elsewhere").load("train")) == 3
    with pytest.raises(DataError, match="coco: images: is for a file of annotations"):
        opened(tmp_path, ".", images="elsewhere")


def test_two_images_are_split_and_one_is_not(tmp_path: Path) -> None:
    """Each side needs one."""
    dataset = opened(write(tmp_path, 2))
    assert [dataset.count(split) for split in dataset.splits] == [1, 1]
    with pytest.raises(DataError, match="one image cannot be split into train and test"):
        opened(write(tmp_path, 1))


def test_annotations_without_their_images_are_no_split(tmp_path: Path) -> None:
    """COCO's come for all splits at once, its images one by one."""
    for split in ("train", "val"):
        write(tmp_path, name=f"annotations/instances_{split}.json", where="train")
    assert opened(tmp_path, ".").splits == ("train",)


@pytest.mark.parametrize(("width", "height"), [(20, 40), (1, 20)])
def test_annotations_of_another_size_are_told(tmp_path: Path, width: int, height: int) -> None:
    """Boxes of an image that was scaled or turned since lie elsewhere."""
    images = [
        {"id": 10 + number, "file_name": f"{number}.png", "width": width, "height": height} for number in range(4)
    ]
    with pytest.raises(DataError, match=f"has 40 x 20 pixels, its annotations are of {width} x {height}"):
        opened(write(tmp_path, images=images, annotations=[])).load("train")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resize": 40}, "resize: a crop would cut boxes"),
        ({"fit": "crop"}, "fit: expected one of letterbox, stretch, got 'crop'"),
        ({"size": None}, "size: expected the height and width"),
    ],
)
def test_options_that_do_not_fit_are_told(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    """Before an image is read."""
    with pytest.raises(QbenchError, match=words):
        opened(write(tmp_path), **options)


def test_what_is_no_data_set_says_what_one_is(tmp_path: Path) -> None:
    """An empty folder, a damaged file, splits of other categories."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=re.escape("expected annotations/instances_train.json and train/")):
        opened(tmp_path, "empty")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(DataError, match=r"bad\.json: cannot be read as JSON"):
        opened(tmp_path, "bad.json")
    for split, categories in (("train", [{"id": 7}, {"id": 90}]), ("val", [{"id": 1}])):
        changes = {"annotations": [], "categories": categories}
        write(tmp_path, name=f"annotations/instances_{split}.json", where=split, **changes)
    with pytest.raises(DataError, match="its splits have different categories"):
        opened(tmp_path, ".")


def test_a_file_of_annotations_has_so_many_bytes_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gigabyte: twice those of COCO's own."""
    asked = []
    read = regular_file.read_bytes

    def note(file: Path, most: int) -> bytes:
        asked.append(most)
        return read(file, most)

    monkeypatch.setattr(regular_file, "read_bytes", note)
    opened(write(tmp_path))
    assert asked == [1_073_741_824]


def test_lists_within_lists_without_end_are_no_annotations(tmp_path: Path) -> None:
    """They are no reason for a traceback."""
    (tmp_path / "instances.json").write_text("[" * 200_000)
    with pytest.raises(DataError, match=r"instances\.json: cannot be read as JSON"):
        opened(tmp_path)


def test_the_first_image_tells_where_the_others_lie(tmp_path: Path) -> None:
    """In the folder ``images`` before the file's own; what is not there is named to the fifth."""
    write(tmp_path)
    write(tmp_path, where=".")
    assert [file.parent.name for file in (image.file for image in opened(tmp_path).images["train"])] == ["images"] * 3
    for number in range(1, 4):
        (tmp_path / "images" / f"{number}.png").unlink()
    with pytest.raises(DataError, match=rf"3 images are not in {tmp_path}/images: 1\.png, 2\.png, 3\.png$"):
        opened(tmp_path)
    write(tmp_path / "more", 8)
    for number in range(1, 8):
        (tmp_path / "more" / "images" / f"{number}.png").unlink()
    with pytest.raises(DataError, match=r": 1\.png, 2\.png, 3\.png, 4\.png, 5\.png and 2 more$"):
        opened(tmp_path / "more")


def test_categories_of_splits_are_told_to_the_fifth(tmp_path: Path) -> None:
    """Each split with the ids that it has."""
    for split, count in (("train", 6), ("val", 2)):
        changes = {"annotations": [], "categories": [{"id": number} for number in range(1, count + 1)]}
        write(tmp_path, name=f"annotations/instances_{split}.json", where=split, **changes)
    with pytest.raises(DataError, match=r"\(train: \[1, 2, 3, 4, 5\]; val: \[1, 2\]\)"):
        opened(tmp_path, ".")


@pytest.mark.parametrize("size", [(40, 0), (40, None), (40.0, 20), (None, 20)])
def test_an_image_whose_size_is_half_said_has_none(tmp_path: Path, size: tuple[Any, Any]) -> None:
    """Nothing is compared with it."""
    images = [
        {"id": 10 + number, "file_name": f"{number}.png", "width": size[0], "height": size[1]} for number in range(4)
    ]
    dataset = opened(write(tmp_path, images=images, annotations=box(bbox=[900, 2, 3, 4])["annotations"]))
    assert all(image.size is None for split in dataset.splits for image in dataset.images[split])
    assert len(dataset.load("train")) == 3
