"""``imagenet``: an ImageNet folder of your own, or without one the 20 labelled photos that the package foolbox carries.

``{imagenet: /data/imagenet/val}`` is an ``image-folder`` with its options, whose 1,000 class folders in sorted order
are the model's outputs (where yours holds fewer, ``classes`` says which). ``imagenet`` alone: ten photos are ``test``;
the ten others are ``train``, each as ten crops (corners and centre, mirrored too), so that a calibration sees a hundred
pictures but none of an evaluation. Ten examples measure no accuracy; they serve to try things, and to compare outputs.
Options of both: ``size`` (224), ``resize`` (256), ``order`` (rgb), ``scale`` (1/255), ``mean`` and ``std``
(torchvision's).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from qbench import installation, registry
from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples
from qbench.datasets.image import read_images, read_preprocessing, shape_of
from qbench.datasets.splits import SPLITS
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError

NAME = "imagenet"
CLASSES = 1000
PACKAGE = "foolbox"
PATTERN = "imagenet_[0-9][0-9]_*.jpg"
COUNT = 20
OF_FOLDERS = ("channels", "layout", "seed", "test_share", "classes")


class Photos(Dataset):
    """Raw inputs are uint8 of shape (n, 3, size, size)."""

    name = NAME
    splits = SPLITS
    classes = CLASSES

    def __init__(self, options: opt.ImagenetOptions) -> None:
        self.shape = shape_of(options)
        self.preprocessing = read_preprocessing(options)
        self.files = dict(zip(SPLITS, (_files()[::2], _files()[1::2]), strict=True))

    def load(self, split: str) -> Examples:
        """The photos of ``test``, ids are the names of their files; or the crops of those of ``train``."""
        require_split(self, split)
        files = self.files[split]
        where = f"{self.name}: split '{split}'"
        labels = [int(file.stem.rpartition("_")[2]) for file in files]
        if split == "test":
            images, crops = read_images(files, self.shape, where), [""]
        else:
            images, crops = self._crops(files, where)
        examples = Examples(
            inputs=(images,),
            labels=np.repeat(np.array(labels, dtype=np.int64), len(crops)),
            ids=tuple(f"{file.name}{crop}" for file in files for crop in crops),
        )
        check_dataset(self, split, examples)
        return examples

    def _crops(self, files: list[Path], where: str) -> tuple[Array, list[str]]:
        """Ten crops of each photo, one photo after the other, and their names."""
        assert self.shape.size is not None
        height, width = self.shape.size
        side = max(self.shape.resize or 0, height, width)
        squares = read_images(files, replace(self.shape, size=(side, side), resize=None), where)
        crops = [
            (f"#{name}{suffix}", squares[:, :, top : top + height, left : left + width][..., ::step])
            for name, top, left in _places(side - height, side - width)
            for suffix, step in (("", 1), ("-mirrored", -1))
        ]
        batch = np.stack([images for _, images in crops], axis=1)
        return batch.reshape(-1, *batch.shape[2:]), [name for name, _ in crops]


def _places(down: int, right: int) -> Iterator[tuple[str, int, int]]:
    yield "centre", down // 2, right // 2
    for vertical, top in (("top", 0), ("bottom", down)):
        for horizontal, left in (("left", 0), ("right", right)):
            yield f"{vertical}-{horizontal}", top, left


def _files() -> list[Path]:
    """The photos in the package, in their order; foolbox itself, which takes a second to import, is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = (spec.submodule_search_locations if spec else None) or []
    files = sorted(file for folder in folders for file in (Path(folder) / "data").glob(PATTERN))
    if len(files) != COUNT:
        what = f"{PACKAGE} is not installed" if spec is None else f"{PACKAGE} carries {len(files)} of {COUNT} photos"
        brought = f"{installation.install([PACKAGE], 'zoo')} brings them ({PACKAGE} 3.3.4)"
        raise DataError(f"{NAME}: {what}; {brought}, or name a folder of your own: {{{NAME}: /path}}")
    return files


def _folder(value: Any, base: Path, options: opt.ImagenetOptions) -> Dataset:
    chosen = options.model_dump(exclude={"scale"} if options.scale is None else set())
    dataset: Dataset = registry.load("dataset", "image-folder")(value, base=base, options=chosen)
    if options.classes is None and dataset.classes not in (None, CLASSES):
        raise DataError(
            f"{NAME}: {value} has {dataset.classes} class folders, which cannot be matched with the model's {CLASSES} "
            "outputs; add classes: a file with the name of each output's folder, one a line, or all of them as a list"
        )
    return dataset


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The folder, or the photos; reads no image."""
    keys = opt.read(opt.ImagenetOptions, options)
    if value is not None:
        return _folder(value, base, keys)
    idle = [key for key in OF_FOLDERS if key in keys.model_fields_set]
    if idle:
        raise DataError(f"{NAME}: {idle[0]} is for a folder of your own: {{{NAME}: /path, {idle[0]}: …}}")
    return Photos(keys)
