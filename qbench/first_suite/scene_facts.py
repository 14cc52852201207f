"""What a suite must say of images with boxes or masks, and of a detector's outputs, read from what lies there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.first_suite.model_facts import ModelFacts

_IMAGES, _MASKS = "images", "masks"
_BOX = 6  # numbers of a box with its score and class
_DECODE = "decode"
_HEAD = '''"""Boxes of the outputs of {name}; of those of a class that overlap the best.

Written by `qbench init`. The outputs were taken as
{layout}.
"""

import numpy as np

from qbench.models.suppression import suppress_overlaps


def decode(outputs):
    found = []
    for cells in outputs:
'''
_TAIL = """        boxes = np.concatenate([centre - extent / 2, centre + extent / 2]).T
        found.append(suppress_overlaps(boxes, scores.T, least_score=0.001, overlap=0.65))
    return found  # of each image rows: x1, y1, x2, y2, score, class
"""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How a detector's outputs become boxes: the Python file that does it, and what is assumed. ``known`` False: the
    outputs are of no layout that is known."""

    known: bool = True
    code: tuple[str, str] | None = None
    notes: tuple[str, ...] = ()


def has_masks(path: Path) -> bool:
    """Whether a folder holds images with masks, in splits or side by side."""
    return any((place / _IMAGES).is_dir() and (place / _MASKS).is_dir() for place in (path, *path.glob("*/")))


def has_boxes(path: Path) -> bool:
    """Whether a folder or a JSON file looks like COCO's; the data set says what is wrong with it."""
    if path.is_file():
        return path.suffix.lower() == ".json"
    return any(path.glob("annotations/instances_*.json")) or any(path.glob("*/_annotations.coco.json"))


def choose_mask_options(model: ModelFacts) -> Mapping[str, Any]:
    """How many classes the masks have, where the model's output tells it."""
    if len(model.output_sizes) != 4 or not model.output_sizes[1]:
        return {}
    return {"classes": max(2, model.output_sizes[1])}


def find_decoding(model: ModelFacts, classes: int) -> Decoding:
    """What makes boxes of the outputs of a detector of so many classes: nothing where they are boxes, else the layout
    of YOLO's exports, by the number of values of a cell."""
    sizes = model.output_sizes
    name = f"{model.name.replace('-', '_').replace('.', '_')}_boxes.py"
    if len(sizes) != 3:
        return Decoding(known=False)
    if sizes[2] == _BOX:
        return Decoding(notes=("its outputs were taken as boxes: x1, y1, x2, y2, score, class",))
    if sizes[1] == 4 + classes:
        layout = f"(n, 4 + {classes}, cells): centre, size, score of each class"
        body = "        centre, extent, scores = cells[:2], cells[2:4], cells[4:]\n"
    elif sizes[2] == 5 + classes:
        layout = f"(n, cells, 5 + {classes}): centre, size, object, score of each class"
        body = "        centre, extent, scores = cells.T[:2], cells.T[2:4], cells.T[4:5] * cells.T[5:]\n"
    else:
        return Decoding(known=False)
    text = _HEAD.format(name=model.name, layout=layout) + body + _TAIL
    return Decoding(code=(name, text), notes=(f"its outputs were taken as {layout}; {name}:{_DECODE} makes boxes",))
