"""Images with a mask beside each: ``<dir>/<split>/images/a.jpg`` and ``<dir>/<split>/masks/a.png``, or
``<dir>/images`` and ``<dir>/masks``, which are split into train and test by ``seed`` and ``test_share``.

A mask is a grey or palette image whose pixels are the numbers of classes; ``ignore`` (255 by default) is the number of
pixels of which nobody says what they are. An image, turned as its EXIF says, and its mask are resized and cropped
alike, a mask without new values (nearest). Options are those of ``image-folder``, and ``classes``: how many there are.
"""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples, positions
from qbench.datasets.image import ENDINGS, Shape, crop_like, read_images, read_preprocessing, shape_of
from qbench.datasets.splits import SPLITS, split_by_share
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError, first_names
from qbench.files import regular_file

IMAGES, MASKS = "images", "masks"
UNKNOWN = -1  # the label of a pixel that does not count, as scores of masks take it
SHOWN = 5
_MODES = ("1", "L", "P", "I", "I;16")
_ORIENTATION, _ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)  # of EXIF
Pair = tuple[Path, Path]


class Masks(Dataset):
    """Pairs of files found when opened, read when asked for; labels are int16 (n, height, width)."""

    def __init__(self, folder: Path, name: str, options: opt.MasksOptions) -> None:
        self.name, self.folder, self.classes = name, folder, options.classes
        self.shape, self.ignore = shape_of(options), options.ignore
        self.preprocessing = read_preprocessing(options)
        self.pairs = _find(folder, options)
        self.splits = tuple(self.pairs)

    def load(self, split: str) -> Examples:
        """All pairs of a split; ids are the images' paths below the folder."""
        return self.sample(split, None, 0)

    def sample(self, split: str, samples: int | None, seed: int) -> Examples:
        """``samples`` pairs drawn by ``seed``; the others are not read."""
        require_split(self, split)
        try:
            chosen = (
                range(len(self.pairs[split])) if samples is None else positions(len(self.pairs[split]), samples, seed)
            )
        except DataError as error:
            raise DataError(f"{self.name}: split '{split}': {error}") from error
        pairs = [self.pairs[split][i] for i in chosen]
        where = f"{self.name}: split '{split}'"
        images = read_images([image for image, _ in pairs], self.shape, where)
        labels = _read_masks(pairs, self.shape, self.ignore, where)
        ids = tuple(image.relative_to(self.folder).as_posix() for image, _ in pairs)
        examples = Examples(inputs=(images,), labels=labels, ids=ids)
        check_dataset(self, split, examples)
        return examples

    def count(self, split: str) -> int:
        """The pairs of a split."""
        require_split(self, split)
        return len(self.pairs[split])


def _find(folder: Path, options: opt.MasksOptions) -> dict[str, list[Pair]]:
    if (folder / IMAGES).is_dir():
        pairs = _pair(folder)
        if len(pairs) < 2:
            raise DataError("masks: one image cannot be split into train and test")
        index = split_by_share(np.zeros(len(pairs)), test_share=options.test_share, seed=options.seed)
        return {split: [pairs[i] for i in index[split]] for split in SPLITS}
    splits = sorted(place for place in folder.iterdir() if (place / IMAGES).is_dir())
    if not splits:
        raise DataError(
            f"masks: {folder}: no folder {IMAGES}/ in it, or in a folder of a split; expected {IMAGES}/a.jpg and "
            f"{MASKS}/a.png, or train/{IMAGES}/a.jpg and train/{MASKS}/a.png"
        )
    return {place.name: _pair(place) for place in splits}


def _pair(folder: Path) -> list[Pair]:
    """Each image with the mask that is called like it; raises ``DataError`` where one has none."""
    images, masks = _list_by_stem(folder / IMAGES), _list_by_stem(folder / MASKS)
    lone = sorted(images.keys() ^ masks.keys())
    if not images or lone:
        what = f"without a partner: {first_names(lone, SHOWN)}" if images else "no images"
        raise DataError(
            f"masks: {folder}: {what}; every image in {IMAGES}/ has a mask of its name in {MASKS}/, and the other way"
        )
    return [(images[stem], masks[stem]) for stem in sorted(images)]


def _list_by_stem(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    return {
        file.stem: file
        for file in sorted(folder.iterdir())
        if file.suffix.lower() in ENDINGS and file.is_file() and not file.name.startswith(".")
    }


def _read_masks(pairs: list[Pair], shape: Shape, ignore: int | None, where: str) -> Array:
    """int16 (n, height, width), ``UNKNOWN`` where a mask is ``ignore``; one error lists all that cannot be used."""
    masks, problems = list[Array](), list[str]()
    for image, mask in pairs:
        try:
            masks.append(_read_mask(image, mask, shape, ignore))
        except DataError as error:
            problems.append(f"{mask}: {error}")
    if problems:
        listing = "\n  ".join(problems[:SHOWN])
        raise DataError(f"{where}: {len(problems)} of {len(pairs)} masks cannot be used:\n  {listing}")
    return np.stack(masks)


def _read_mask(image_file: Path, file: Path, shape: Shape, ignore: int | None) -> Array:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with regular_file.open_file(image_file) as stream, Image.open(stream) as image:
                size = image.size if image.getexif().get(_ORIENTATION) not in _ON_ITS_SIDE else image.size[::-1]
            with regular_file.open_file(file) as stream, Image.open(stream) as mask:
                if mask.mode not in _MODES:
                    raise DataError(
                        f"it is {mask.mode}: expected a grey or palette image whose pixels are numbers of classes"
                    )
                if mask.size != size:
                    raise DataError(f"{mask.size[0]}x{mask.size[1]} pixels, its image {size[0]}x{size[1]}")
                values = np.array(crop_like(mask, shape)).astype(np.int32)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise DataError("too many pixels, refused as a decompression bomb") from error
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error) as error:
        raise DataError(f"unreadable: {error}") from error
    if values.max(initial=0) > np.iinfo(np.int16).max:
        raise DataError(f"it holds the number {values.max()}; classes are numbers from 0")
    labels: Array = np.where(values == (UNKNOWN if ignore is None else ignore), UNKNOWN, values).astype(np.int16)
    return labels


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The folder's splits; lists the files, reads no image."""
    keys = opt.read(opt.MasksOptions, options)
    folder = opt.read_path("masks", value, base)
    if not folder.is_dir():
        raise DataError(f"masks: {folder} is not a folder")
    return Masks(folder, f"masks:{value}", keys)
