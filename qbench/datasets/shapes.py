"""``shapes``: rendered scenes with discs, squares and triangles, with a box or a mask for each; nothing is fetched.

``shapes`` alone (or ``{shapes: boxes}``) gives boxes of 3 classes as ``coco`` does, ``{shapes: masks}`` masks of 4
classes (0 is the background) as ``masks`` does. An image is 96 x 96 pixels, drawn from its own seed, so that the scenes
are the same everywhere and a few of them are drawn alone. Objects overlap a little, colours are faint now and then, and
lines cross the scene that are no objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples, positions
from qbench.datasets.boxes import NO_BOX, join_boxes
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.splits import SPLITS
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError

NAME = "shapes"
KINDS = ("boxes", "masks")
SIZE = 96
COUNTS = {"train": 2000, "test": 500}
_FIRST_SEEDS = {"train": 0, "test": 1_000_000}
DISC, SQUARE, TRIANGLE = SHAPES = (0, 1, 2)
_MOST_OBJECTS, _TRIES = 5, 20
_SIZES = (12, 49)  # pixels from edge to edge
_MOST_OVERLAP = 0.25  # of the smaller one's box
_LEAST_CONTRAST, _LINES, _NOISE = 40, 4, 12.0


class Shapes(Dataset):
    """Raw inputs are uint8 (n, 3, 96, 96); labels as ``kind`` says."""

    splits = SPLITS
    preprocessing = Preprocessing(scale=1 / 255)

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = f"{NAME}:{kind}"
        self.classes = len(SHAPES) if kind == "boxes" else len(SHAPES) + 1

    def load(self, split: str) -> Examples:
        """All scenes of a split; ids are its name and their number."""
        return self.sample(split, None, 0)

    def sample(self, split: str, samples: int | None, seed: int) -> Examples:
        """``samples`` scenes drawn by ``seed``; the others are not rendered."""
        require_split(self, split)
        count = COUNTS[split]
        try:
            chosen = range(count) if samples is None else positions(count, samples, seed)
        except DataError as error:
            raise DataError(f"{self.name}: split '{split}': {error}") from error
        scenes = [_draw_scene(np.random.RandomState(_FIRST_SEEDS[split] + int(number))) for number in chosen]
        images = np.stack([image for image, _, _ in scenes])
        labels = (
            join_boxes([boxes for _, boxes, _ in scenes])
            if self.kind == "boxes"
            else np.stack([mask for _, _, mask in scenes])
        )
        ids = tuple(f"{split}/{int(number):04d}" for number in chosen)
        examples = Examples(inputs=(images,), labels=labels, ids=ids)
        check_dataset(self, split, examples)
        return examples

    def count(self, split: str) -> int:
        """The scenes of a split."""
        require_split(self, split)
        return COUNTS[split]


def _draw_scene(random: np.random.RandomState) -> tuple[Array, Array, Array]:
    """An image (3, 96, 96), its boxes (m, 6) and its mask (96, 96)."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    corner, slope = random.randint(60, 180, 3), random.randint(-40, 41, (2, 3))
    image = corner + (rows[..., None] * slope[0] + columns[..., None] * slope[1]) / SIZE
    for _ in range(random.randint(_LINES + 1)):
        (across, along), offset = random.randint(-8, 9, 2), random.randint(-SIZE, SIZE)
        near = np.abs(across * (rows - SIZE // 2) + along * (columns - SIZE // 2) + offset * 4) < 9
        image[near] = random.randint(0, 256, 3)
    mask = np.zeros((SIZE, SIZE), dtype=np.int16)
    boxes = list[Array]()
    for _ in range(random.randint(1, _MOST_OBJECTS + 1)):
        inside, shape = _place_object(random, rows, columns, boxes)
        if inside is None:
            continue
        background = image[inside].mean(axis=0)
        image[inside] = _choose_colour(random, background)
        mask[inside] = shape + 1
        down, right = np.nonzero(inside)
        boxes.append(np.array([right.min(), down.min(), right.max() + 1, down.max() + 1, shape, 0], dtype=np.float32))
    image = image + random.randint(-255, 256, image.shape) * (_NOISE / 255)
    pixels = np.clip(image, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)), np.stack(boxes) if boxes else NO_BOX[:0], mask


def _place_object(
    random: np.random.RandomState, rows: Array, columns: Array, boxes: list[Array]
) -> tuple[Array | None, int]:
    """The pixels of an object that overlaps the others little, and its class; None where there is no room."""
    shape = int(random.choice(SHAPES))
    for _ in range(_TRIES):
        size = random.randint(*_SIZES)
        top, left = random.randint(0, SIZE - size + 1, 2)
        box = np.array([left, top, left + size, top + size])
        if all(_overlap(box, other) <= _MOST_OVERLAP for other in boxes):
            return _fill(shape, rows - top, columns - left, size), shape
    return None, shape


def _overlap(first: Array, second: Array) -> float:
    """The common part of two boxes, of the smaller one's area."""
    sides = np.minimum(first[2:4], second[2:4]) - np.maximum(first[:2], second[:2])
    smaller = min(np.prod(first[2:4] - first[:2]), np.prod(second[2:4] - second[:2]))
    return float(np.prod(np.maximum(sides, 0)) / smaller)


def _fill(shape: int, down: Array, right: Array, size: int) -> Array:
    """The pixels of a shape in the square of ``size`` at the origin."""
    inside: Array = (down >= 0) & (down < size) & (right >= 0) & (right < size)
    if shape == DISC:
        inside &= (2 * down + 1 - size) ** 2 + (2 * right + 1 - size) ** 2 <= size**2
    if shape == TRIANGLE:
        inside &= np.abs(2 * right + 1 - size) <= down + 1
    return inside


def _choose_colour(random: np.random.RandomState, background: Array) -> Array:
    for _ in range(_TRIES):
        colour: Array = random.randint(0, 256, 3)
        if np.abs(colour - background).max() >= _LEAST_CONTRAST:
            break
    return colour


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The scenes with what stands behind the name, boxes where nothing does; renders nothing."""
    opt.read(opt.ShapesOptions, options)
    kind = KINDS[0] if value is None else value
    if kind not in KINDS:
        raise DataError(f"{NAME}: expected {' or '.join(KINDS)}, got {value!r}; write {{{NAME}: {KINDS[0]}}}")
    return Shapes(kind)
