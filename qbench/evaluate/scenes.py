"""Scenes whose boxes or masks int8 changes most, fp32's and int8's beside each other, kept in the run's folder.

    scenes/<predictions>.000123.png    the evaluation example at position 123

Like thumbnails of flips (``evaluate.thumbnails``) they are drawn while the data set is at hand. How a scene changed
follows from the stored predictions alone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qbench.evaluate.predictions import load_predictions
from qbench.evaluate.thumbnails import PLAIN, SUFFIXES, Pictures, find_pictures
from qbench.files import atomic, regular_file
from qbench.metrics.base import take_answers
from qbench.metrics.box_overlaps import CLASS, COLUMNS, SCORE, match_boxes, measure_overlaps
from qbench.progress.callback import Progress

if TYPE_CHECKING:
    from qbench.data import Data

Array = NDArray[Any]
FOLDER = "scenes"
MOST = 4  # of a variant
SIDE = 192  # pixels of the longer side of either half
LEAST_SCORE = 0.3  # of a box that is drawn, of the highest one of all
SAME_OBJECT = 0.5  # the overlap from which on two boxes are of one object
_COLOURS = (
    *((230, 75, 60), (0, 170, 90), (50, 110, 230), (235, 160, 0), (150, 80, 200), (0, 175, 200), (235, 90, 165)),
    (130, 150, 40),
)
_GAP, _SHARE_OF_MASK = 4, 0.5
_NAME = re.compile(r"(?P<predictions>[\w@.+-]+)\.(?P<position>\d{6})\.(?:png|jpg)")


@dataclass(frozen=True, kw_only=True)
class SceneChange:
    """What int8 changes in one scene: ``size`` is 0 where nothing; of boxes those that it lost and found, and the mean
    overlap of the others; of masks the share of pixels with another class."""

    size: float
    lost: int = 0
    found: int = 0
    same: int = 0
    overlap: float = 1.0
    pixels: float | None = None

    def __str__(self) -> str:
        """``2 lost, 1 new, 3 the same, overlapping by 94 %``; of masks ``1.5 % of the pixels have another class``."""
        if self.pixels is not None:
            return f"{100 * self.pixels:.2g} % of the pixels have another class"
        parts = [f"{self.lost} lost"] * (self.lost > 0) + [f"{self.found} new"] * (self.found > 0)
        parts += [f"{self.same} the same, overlapping by {100 * self.overlap:.0f} %"] * (self.same > 0)
        return ", ".join(parts) or "no box in either"


@dataclass(frozen=True, kw_only=True)
class SceneAnswers:
    """What a file of predictions says of scenes: ``boxes`` (n, m, 6) of which those from ``least`` on are shown, or
    ``masks`` (n, height, width), the class of each pixel."""

    boxes: Array | None = None
    least: float = 0.0
    masks: Array | None = None

    @property
    def n(self) -> int:
        """How many examples there are."""
        answers = self.masks if self.boxes is None else self.boxes
        return 0 if answers is None else len(answers)


def read_scenes(predictions: Mapping[str, Array]) -> SceneAnswers | None:
    """The boxes or masks of stored predictions; None where they are neither, or their labels are not."""
    stored = take_answers(dict(predictions))
    outputs, labels = stored.get("outputs"), stored.get("labels")
    if outputs is None or labels is None or labels.ndim != 3 or not outputs.size or len(outputs) != len(labels):
        return None
    if labels.dtype.kind == "f" and outputs.ndim == 3 and outputs.shape[2] == labels.shape[2] == COLUMNS:
        shown = outputs[..., CLASS] >= 0
        highest = float(outputs[..., SCORE][shown].max()) if shown.any() else 0.0
        return SceneAnswers(boxes=outputs, least=LEAST_SCORE * highest)
    if labels.dtype.kind in "iu" and outputs.ndim == 4 and outputs.shape[2:] == labels.shape[1:]:
        masks = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
        return SceneAnswers(masks=masks.astype(np.int16))
    return None


def compare_scene(int8: SceneAnswers, fp32: SceneAnswers, position: int) -> SceneChange:
    """How the answers for one example differ."""
    if int8.masks is not None and fp32.masks is not None:
        share = float((int8.masks[position] != fp32.masks[position]).mean())
        return SceneChange(size=share, pixels=share)
    new, old = (_list_shown(answers, position) for answers in (int8, fp32))
    lost = found = same = 0
    overlaps = list[float]()
    for kind in np.unique(np.concatenate([new[:, CLASS], old[:, CLASS]])):
        ours, theirs = (boxes[boxes[:, CLASS] == kind][:, :4].astype(np.float64) for boxes in (new, old))
        nobody = np.zeros(len(theirs), dtype=bool)
        matched = match_boxes(ours, theirs, nobody, np.array([SAME_OBJECT]))[0][:, 0]
        lost, found = lost + len(theirs) - int(matched.sum()), found + int((~matched).sum())
        same += int(matched.sum())
        if matched.any():
            overlaps += measure_overlaps(ours[matched], theirs, nobody).max(axis=1).tolist()
    overlap = float(np.mean(overlaps)) if overlaps else 1.0
    return SceneChange(size=lost + found + same * (1 - overlap), lost=lost, found=found, same=same, overlap=overlap)


def _list_shown(answers: SceneAnswers, position: int) -> Array:
    assert answers.boxes is not None
    boxes = answers.boxes[position]
    boxes = boxes[(boxes[:, CLASS] >= 0) & (boxes[:, SCORE] >= answers.least)]
    shown: Array = boxes[np.argsort(-boxes[:, SCORE], kind="stable")]
    return shown


def keep_here(pairs: Sequence[tuple[Path, Path]], data: Data, folder: Path, *, progress: Progress) -> int:
    """Writes ``scenes/`` of a run's folder; returns how many pictures there are. ``pairs``: files of predictions, of an
    int8 variant and of its fp32. Files whose answers are no scenes have none; 0 where the examples are no images."""
    images = find_pictures(data._raw("evaluate")[0]) if data.inputs == 1 else None
    if images is None:
        return 0
    count = 0
    for file, baseline in pairs:
        progress("draw what int8 changes", count / (MOST * len(pairs)))
        int8, fp32 = read_scenes(load_predictions(file)), read_scenes(load_predictions(baseline))
        if int8 is None or fp32 is None:  # a classifier beside detectors
            continue
        changes = [compare_scene(int8, fp32, position) for position in range(min(int8.n, fp32.n, len(images.values)))]
        largest = sorted(range(len(changes)), key=lambda position: -changes[position].size)[:MOST]
        for position in largest:
            if changes[position].size > 0:
                suffix, content = draw_pair(images, position, fp32, int8)
                atomic.make_folder(folder / FOLDER)
                with atomic.replace_file(folder / FOLDER / f"{file.stem}.{position:06d}{suffix}") as part:
                    part.write_bytes(content)
                count += 1
    return count


def draw_pair(images: Pictures, position: int, fp32: SceneAnswers, int8: SceneAnswers) -> tuple[str, bytes]:
    """The suffix and bytes of a picture of fp32's answer and int8's beside each other."""
    from PIL import Image

    pixels = images.pixels(position)
    image = Image.fromarray(np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels)
    ratio = SIDE / max(image.size)
    size = (max(1, round(image.width * ratio)), max(1, round(image.height * ratio)))
    sheet = Image.new("RGB", (2 * size[0] + _GAP, size[1]), (255, 255, 255))
    for place, answers in enumerate((fp32, int8)):
        half = image.resize(size, Image.Resampling.BICUBIC if ratio < 1 else Image.Resampling.NEAREST)
        sheet.paste(_draw(half, answers, position, ratio), (place * (size[0] + _GAP), 0))
    stream = io.BytesIO()
    plain = max(image.size) <= PLAIN
    sheet.save(stream, "PNG" if plain else "JPEG", **({"optimize": True} if plain else {"quality": 85}))
    return (".png" if plain else ".jpg"), stream.getvalue()


def _draw(half: Any, answers: SceneAnswers, position: int, ratio: float) -> Any:
    from PIL import Image, ImageDraw

    if answers.masks is not None:
        mask = answers.masks[position]
        colours = np.array([(0, 0, 0), *_COLOURS], dtype=np.uint8)
        painted = Image.fromarray(colours[np.where(mask > 0, (mask - 1) % len(_COLOURS) + 1, 0)])
        painted = painted.resize(half.size, Image.Resampling.NEAREST)
        shown = Image.fromarray(np.where(mask > 0, int(255 * _SHARE_OF_MASK), 0).astype(np.uint8))
        return Image.composite(painted, half, shown.resize(half.size, Image.Resampling.NEAREST))
    drawing = ImageDraw.Draw(half)
    for box in _list_shown(answers, position)[::-1]:
        corners = [float(np.clip(value, -1e6, 1e6)) * ratio for value in box[:4]]
        if corners[2] >= corners[0] and corners[3] >= corners[1]:
            drawing.rectangle(corners, outline=_COLOURS[int(box[CLASS]) % len(_COLOURS)], width=2)
    return half


def list_stored(folder: Path, predictions: str) -> Iterator[tuple[int, str, bytes]]:
    """The pictures of one file of predictions in a run's folder: position, media type and bytes."""
    place = folder / FOLDER
    for file in sorted(place.iterdir()) if place.is_dir() else ():
        name = _NAME.fullmatch(file.name)
        if name is not None and name["predictions"] == Path(predictions).stem and file.is_file():
            yield int(name["position"]), SUFFIXES[file.suffix], regular_file.read_bytes(file)
