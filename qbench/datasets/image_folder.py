"""Images in class folders: ``<dir>/<split>/<class>/*.png`` or ``<dir>/<class>/*.png``; without classes:
``<dir>/<split>/*.png``, where every folder is called like a split (``SPLIT_NAMES``), or ``<dir>/*.png``.

Class folders in sorted order are the labels 0, 1, 2 …, the same for every split; where the model has other or more
classes, ``classes`` says which output a folder stands for. Without split folders, images are split into train and test
by ``seed`` and ``test_share``, every class in its proportion. Images without classes have no labels.

Options: ``size`` (one number or [height, width]; without it all images must have one size), ``resize`` (the short
side before the centre crop; by default the image just covers ``size``), ``channels`` 3 or 1, ``layout`` nchw or
nhwc (what the model takes), ``order`` rgb or bgr (the channels as the model takes them, and ``mean`` and ``std``),
``scale`` (default 1/255), ``mean``, ``std``, ``seed``, ``test_share``, ``classes`` (a number n: folders are called by
the model's outputs 0 to n - 1; a list of names, or a text file with one name a line: the folders' names in the order
of the model's outputs, more than there are folders if need be).
Photos are turned as their EXIF says; then as in torchvision's evaluation transforms: bicubic with antialiasing, centre
crop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples, positions
from qbench.datasets.image import ENDINGS, read_images, read_preprocessing, shape_of
from qbench.datasets.splits import SPLITS, split_by_share
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError, first_names
from qbench.files import regular_file

SPLIT_NAMES = (
    *("train", "training", "test", "testing", "val", "valid", "validation"),
    *("calib", "calibrate", "calibration", "eval", "evaluate", "evaluation"),
)
NO_CLASS = ""  # where a class folder's name stands for others
Labelled = tuple[Path, int | None]


class ImageFolder(Dataset):
    """Images found when opened, read when asked for; raw inputs are uint8."""

    def __init__(self, folder: Path, name: str, options: opt.ImageFolderOptions, base: Path) -> None:
        self.name = name
        self.folder = folder
        self.shape = shape_of(options)
        self.preprocessing = read_preprocessing(options)
        files = _find(folder)
        names = sorted({name for classes in files.values() for name in classes if name != NO_CLASS})
        self.labels, self.classes = _labels(names, options.classes, base) if names else ({}, None)
        if not names and options.classes is not None:
            raise DataError(f"image-folder: classes: no image in {folder} lies in a class folder; take classes out")
        self.files = {split: self._labelled(classes) for split, classes in files.items()}
        if "" in self.files:
            self.files = _split(self.files[""], options)
        self.splits = tuple(self.files)

    def load(self, split: str) -> Examples:
        """All images of one split; ids are paths below the folder. Lists every image that cannot be read."""
        return self._read(split, None)

    def sample(self, split: str, samples: int | None, seed: int) -> Examples:
        """``samples`` images drawn by ``seed``; the others are not read."""
        try:
            index = None if samples is None else positions(self.count(split), samples, seed)
        except DataError as error:
            raise DataError(f"{self.name}: split '{split}': {error}") from error
        return self._read(split, index)

    def count(self, split: str) -> int:
        """The files of a split."""
        require_split(self, split)
        return len(self.files[split])

    def known_labels(self, split: str) -> Array | None:
        """The labels of a split whole, from the folders' names; None where there are no classes."""
        return _labels_of(self.files[split])

    def _read(self, split: str, index: Array | None) -> Examples:
        require_split(self, split)
        files = self.files[split] if index is None else [self.files[split][i] for i in index]
        images = read_images([file for file, _ in files], self.shape, f"{self.name}: split '{split}'")
        ids = tuple(file.relative_to(self.folder).as_posix() for file, _ in files)
        examples = Examples(inputs=(images,), labels=_labels_of(files), ids=ids)
        check_dataset(self, split, examples)
        return examples

    def _labelled(self, classes: Mapping[str, list[Path]]) -> list[Labelled]:
        return [(file, self.labels.get(name)) for name in sorted(classes) for file in classes[name]]


def _labels_of(files: Sequence[Labelled]) -> Array | None:
    labels = [label for _, label in files if label is not None]
    return np.array(labels, dtype=np.int64) if labels else None


def _find(folder: Path) -> dict[str, dict[str, list[Path]]]:
    """Files by split and class; the split is ``""`` where there are no folders of splits, the class ``NO_CLASS`` where
    there are none of classes."""
    lone = _images(folder)
    below = {place.name: place for place in _folders(folder)}
    as_classes = {name: _images(place) for name, place in below.items()}
    as_splits = {name: {inner.name: _images(inner) for inner in _folders(place)} for name, place in below.items()}
    as_splits = {name: classes for name, classes in as_splits.items() if any(classes.values())}
    direct = [name for name, files in as_classes.items() if files]
    if lone and (direct or as_splits):
        raise DataError(
            f"image-folder: {folder}: images lie both directly in it ({lone[0].name}) and in "
            f"{next(iter(direct or as_splits))}/; take one of the two away: where there are classes, every image "
            "lies in a folder of one"
        )
    if lone:
        return {"": {NO_CLASS: lone}}
    if direct and not as_splits and all(name.lower() in SPLIT_NAMES for name in direct):
        return {name: {NO_CLASS: as_classes[name]} for name in direct}
    if direct and as_splits:
        raise DataError(
            f"image-folder: {folder}: images lie both in {direct[0]}/ and one level deeper in "
            f"{next(iter(as_splits))}/; use either <split>/<class>/image or <class>/image"
        )
    splits = as_splits or ({"": as_classes} if direct else {})
    if not splits:
        raise DataError(
            f"image-folder: {folder}: no images in it, in <class>/ or in <split>/<class>/; "
            f"read are {', '.join(ENDINGS)}"
        )
    for split, classes in splits.items():
        empty = sorted(name for name, files in classes.items() if not files)
        if empty:
            raise DataError(f"image-folder: {folder / split}: no images in the class folders {', '.join(empty)}")
    return splits


def _labels(names: Sequence[str], classes: int | str | Sequence[str] | None, base: Path) -> tuple[dict[str, int], int]:
    """The label of each class folder, and the number of the model's classes."""
    if classes is None:
        return {name: label for label, name in enumerate(names)}, len(names)
    if isinstance(classes, int):
        wrong = [name for name in names if not (name.isascii() and name.isdigit() and int(name) < classes)]
        if wrong:
            raise DataError(
                f"image-folder: classes: {classes}: folders must then be called by the model's outputs, 0 to "
                f"{classes - 1}; these are not: {first_names(wrong)}; or give classes a file of names"
            )
        twice = sorted({name for name in names if sum(int(other) == int(name) for other in names) > 1})
        if twice:
            raise DataError(f"image-folder: classes: {first_names(twice)} are one class; keep one folder")
        return {name: int(name) for name in names}, classes
    listed = _listed(classes, base)
    missing = [name for name in names if name not in listed]
    if missing:
        raise DataError(f"image-folder: classes: no such class as the folders {first_names(missing)}; list it")
    return {name: listed.index(name) for name in names}, len(listed)


def _listed(classes: str | Sequence[str], base: Path) -> list[str]:
    """The names of the model's classes in their order."""
    if isinstance(classes, str):
        file = opt.read_path("image-folder: classes", classes, base)
        try:
            classes = regular_file.read_text(file).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"image-folder: classes: {file} is no text file with one name a line: {error}") from error
        if not classes:
            raise DataError(f"image-folder: classes: {file} is empty; expected a name on each line")
    names = [name.strip() for name in classes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"image-folder: classes: named twice: {first_names(twice)}")
    return names


def _folders(folder: Path) -> list[Path]:
    return sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in ENDINGS and file.is_file() and not file.name.startswith(".")
    )


def _split(files: Sequence[Labelled], options: opt.ImageFolderOptions) -> dict[str, list[Labelled]]:
    if len(files) < 2:
        raise DataError("image-folder: one image cannot be split into train and test")
    labels = _labels_of(files)
    groups = np.zeros(len(files)) if labels is None else labels
    index = split_by_share(groups, test_share=options.test_share, seed=options.seed)
    return {split: [files[i] for i in index[split]] for split in SPLITS}


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The folder's splits and classes; lists the files, reads no image."""
    keys = opt.read(opt.ImageFolderOptions, options)
    folder = opt.read_path("image-folder", value, base)
    if not folder.is_dir():
        raise DataError(f"image-folder: {folder} is not a folder")
    return ImageFolder(folder, f"image-folder:{value}", keys, base)
