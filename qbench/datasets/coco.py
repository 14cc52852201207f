"""Images with boxes in COCO's form: ``{coco: instances.json}`` with the images in a folder beside it, or a folder.

A file is split into train and test by ``seed`` and ``test_share``; ``images`` is the folder of its images (default: the
file's own, or ``images`` beside it). A folder holds ``annotations/instances_<split>.json`` and ``<split>/`` as COCO
comes, or ``<split>/_annotations.coco.json`` beside the images. ``size`` (640) is what the network takes; ``fit`` is
``letterbox`` (the default: grey beside an image of another ratio) or ``stretch``; boxes go with the images. Classes are
the categories in the order of their ids, counted from 0. Other options are those of ``image-folder``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples, positions
from qbench.datasets.boxes import NO_BOX, join_boxes
from qbench.datasets.image import is_below, read_fitted, read_preprocessing, shape_of
from qbench.datasets.option_values import FITS
from qbench.datasets.splits import SPLITS, split_by_share
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError, first_names
from qbench.files import regular_file

MOST_BYTES = 2**30  # COCO's own instances of 118,000 images are 450 MB
SHOWN = 5
_FOLDERS = ("images", ".")
_ROBOFLOW = "_annotations.coco.json"


@dataclass(frozen=True, kw_only=True)
class LabelledImage:
    """An image file, its size as the annotations say it (None: they do not), and its boxes (m, 6) in its own pixels."""

    name: str
    file: Path
    size: tuple[int, int] | None
    boxes: Array


@dataclass(frozen=True, kw_only=True)
class Instances:
    """What a file of annotations says: the ids of its categories in order, and its images."""

    categories: tuple[int, ...]
    images: tuple[LabelledImage, ...]


class Coco(Dataset):
    """Annotations are read when it is opened, images when asked for; labels are boxes (``datasets.boxes``)."""

    def __init__(self, place: Path, name: str, options: opt.CocoOptions, base: Path) -> None:
        self.name = name
        self.shape, self._keep_ratio = shape_of(options), options.fit == FITS[0]
        self.preprocessing = read_preprocessing(options)
        self.images, self.classes = _read_splits(place, options, base)
        self.splits = tuple(self.images)

    def load(self, split: str) -> Examples:
        """All images of a split; ids are their names in the annotations."""
        return self.sample(split, None, 0)

    def sample(self, split: str, samples: int | None, seed: int) -> Examples:
        """``samples`` images drawn by ``seed``; the others are not read."""
        require_split(self, split)
        count = len(self.images[split])
        where = f"{self.name}: split '{split}'"
        try:
            chosen = range(count) if samples is None else positions(count, samples, seed)
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
        chosen_images = [self.images[split][int(place)] for place in chosen]
        files = [image.file for image in chosen_images]
        pixels, moves = read_fitted(files, self.shape, keep_ratio=self._keep_ratio, where=where)
        boxes = [_move(image.boxes, move) for image, move in zip(chosen_images, moves, strict=True)]
        _require_sizes(chosen_images, moves, where)
        ids = tuple(image.name for image in chosen_images)
        examples = Examples(inputs=(pixels,), labels=join_boxes(boxes), ids=ids)
        check_dataset(self, split, examples)
        return examples

    def count(self, split: str) -> int:
        """The images of a split."""
        require_split(self, split)
        return len(self.images[split])


def _move(boxes: Array, move: Array) -> Array:
    """Boxes of a file's pixels where they lie in what the network is given."""
    moved = boxes.astype(np.float64)
    moved[:, [0, 2]] = moved[:, [0, 2]] * move[0] + move[2]
    moved[:, [1, 3]] = moved[:, [1, 3]] * move[1] + move[3]
    return moved.astype(np.float32)


def _require_sizes(images: list[LabelledImage], moves: Array, where: str) -> None:
    """Raises ``DataError`` where annotations are of another size of an image, or of it turned."""
    for image, (*_, width, height) in zip(images, moves, strict=True):
        if image.size is not None and image.size != (width, height):
            raise DataError(
                f"{where}: {image.file} has {width:g} x {height:g} pixels, its annotations are of {image.size[0]} x "
                f"{image.size[1]}; give the images that were annotated (as they are stored: EXIF turns nothing)"
            )


def _read_splits(place: Path, options: opt.CocoOptions, base: Path) -> tuple[dict[str, tuple[LabelledImage, ...]], int]:
    """The images of each split, and the number of classes."""
    if place.is_file():
        folder = None if options.images is None else opt.read_path("coco", options.images, base)
        instances = read_instances(place, folder)
        if len(instances.images) < 2:
            raise DataError(f"coco: {place}: one image cannot be split into train and test")
        index = split_by_share(np.zeros(len(instances.images)), test_share=options.test_share, seed=options.seed)
        images = {split: tuple(instances.images[i] for i in index[split]) for split in SPLITS}
        return images, len(instances.categories)
    if options.images is not None:
        raise DataError("coco: images: is for a file of annotations; a folder has them beside each split's annotations")
    files = dict(_find_splits(place))
    if not files:
        raise DataError(
            f"coco: {place}: expected annotations/instances_train.json and train/, or train/{_ROBOFLOW} beside its "
            "images; or name the file itself: {coco: instances.json, images: folder}"
        )
    splits = {split: read_instances(file, folder) for split, (file, folder) in files.items()}
    if len({instances.categories for instances in splits.values()}) > 1:
        told = "; ".join(f"{split}: {list(each.categories)[:SHOWN]}" for split, each in splits.items())
        raise DataError(
            f"coco: {place}: its splits have different categories ({told}); one network has one list of them"
        )
    return {split: each.images for split, each in splits.items()}, len(next(iter(splits.values())).categories)


def _find_splits(place: Path) -> Iterator[tuple[str, tuple[Path, Path]]]:
    for file in sorted((place / "annotations").glob("instances_*.json")):
        split = file.stem.removeprefix("instances_")
        if (place / split).is_dir():
            yield split, (file, place / split)
    for file in sorted(place.glob(f"*/{_ROBOFLOW}")):
        yield file.parent.name, (file, file.parent)


def read_instances(file: Path, folder: Path | None) -> Instances:
    """What an instances file says, its images in ``folder`` (None: beside it); raises ``DataError`` that lists what
    cannot be used."""
    content = _read_json(file)
    categories = tuple(sorted(int(category["id"]) for category in content["categories"]))
    classes = {number: place for place, number in enumerate(categories)}
    folder = _find_folder(file, content["images"]) if folder is None else folder
    names = {image["id"]: image for image in content["images"]}
    boxes: dict[Any, list[list[float]]] = {number: [] for number in names}
    problems = list[str]()
    for annotation in content["annotations"]:
        problem, row = _read_box(annotation, names, classes)
        if problem is not None:
            problems.append(f"annotation {annotation.get('id', '?')}: {problem}")
        else:
            boxes[annotation["image_id"]].append(row)
    missing = [name for image in names.values() if not is_below(folder, name := str(image["file_name"]))]
    if missing:
        problems.append(f"{len(missing)} images are not in {folder}: {first_names(missing, SHOWN)}")
    if problems:
        more = f"\n  and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise DataError(f"coco: {file}: it cannot be used:\n  " + "\n  ".join(problems[:SHOWN]) + more)
    return Instances(
        categories=categories,
        images=tuple(
            LabelledImage(
                name=str(image["file_name"]),
                file=folder / str(image["file_name"]),
                size=_read_image_size(image),
                boxes=np.array(boxes[number], dtype=np.float32) if boxes[number] else NO_BOX[:0],
            )
            for number, image in names.items()
        ),
    )


def _read_json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(regular_file.read_bytes(file, MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"coco: {file}: cannot be read as JSON: {error}") from error
    parts = ("images", "annotations", "categories")
    if not isinstance(content, dict) or not all(_are_objects(content.get(part)) for part in parts):
        raise DataError(f"coco: {file}: expected COCO's lists of objects: {', '.join(parts)}")
    for part, keys in (("images", ("id", "file_name")), ("categories", ("id",)), ("annotations", ("image_id",))):
        lacking = next((key for item in content[part] for key in keys if key not in item), None)
        if lacking is not None:
            raise DataError(f"coco: {file}: one of its {part} has no {lacking}")
    if not content["categories"] or not all(isinstance(category["id"], int) for category in content["categories"]):
        raise DataError(f"coco: {file}: expected categories with whole numbers as ids")
    return content


def _are_objects(items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, dict) for item in items)


def _read_image_size(image: Mapping[str, Any]) -> tuple[int, int] | None:
    size = (image.get("width"), image.get("height"))
    return (int(size[0]), int(size[1])) if all(isinstance(side, int) and side > 0 for side in size) else None  # type: ignore[arg-type]


def _read_box(
    annotation: Mapping[str, Any], images: Mapping[Any, Mapping[str, Any]], classes: Mapping[int, int]
) -> tuple[str | None, list[float]]:
    """Why an annotation is no box of an image; or its row."""
    number, category, box = annotation["image_id"], annotation.get("category_id"), annotation.get("bbox")
    if number not in images:
        return f"there is no image {number}", []
    if not isinstance(category, int) or category not in classes:
        return f"there is no category {category}", []
    numbers = box if isinstance(box, list) else []
    if len(numbers) != 4 or not all(isinstance(side, int | float) and math.isfinite(side) for side in numbers):
        return f"its bbox is {box}; expected [x, y, width, height]", []
    x, y, width, height = map(float, numbers)
    if width < 0 or height < 0:
        return f"its box is {width:g} wide and {height:g} high", []
    size = _read_image_size(images[number])
    if size is not None and (x >= size[0] or y >= size[1] or x + width <= 0 or y + height <= 0):
        return f"its box [{x:g}, {y:g}, {width:g}, {height:g}] lies outside its image of {size[0]} x {size[1]}", []
    return None, [x, y, x + width, y + height, float(classes[category]), float(bool(annotation.get("iscrowd", 0)))]


def _find_folder(file: Path, images: list[dict[str, Any]]) -> Path:
    """The folder beside a file of annotations that has its first image; its own where none has."""
    names = [str(image["file_name"]) for image in images[:1]]
    places = [file.parent / folder for folder in _FOLDERS] + [file.parent.parent / "images"]
    return next((place for place in places if all((place / name).is_file() for name in names)), file.parent)


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The images of a file or folder; reads the annotations, no image."""
    keys = opt.read(opt.CocoOptions, options)
    return Coco(opt.read_path("coco", value, base), f"coco:{value}", keys, base)
