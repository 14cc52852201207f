"""Lines whose recognized text int8 changes, and pictures of those that change most, kept in the run's folder.

    lines/000123.png    the evaluation example at position 123

Like thumbnails of flips (``evaluate.thumbnails``) they are drawn while the data set is at hand. Which texts changed
follows from the stored predictions alone.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qbench.evaluate.predictions import load_predictions
from qbench.evaluate.thumbnails import SUFFIXES, find_pictures
from qbench.files import atomic, regular_file
from qbench.metrics.base import take_answers
from qbench.metrics.text_rows import are_texts, count_edits, read_text
from qbench.progress.callback import Progress

if TYPE_CHECKING:
    from qbench.data import Data

Array = NDArray[Any]
FOLDER = "lines"
MOST = 12  # of a variant
SIDES = (480, 64)  # the most pixels of a picture's width and height


@dataclass(frozen=True, kw_only=True)
class ReadTexts:
    """Of each example what was written, and what stands there; white space at the ends is left out, as the scores of
    texts leave it out."""

    written: tuple[str, ...]
    references: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TextChange:
    """An example of which fp32 and int8 write different texts: the edits between them, and of each to the
    reference."""

    position: int
    reference: str
    fp32: str
    int8: str
    edits: int
    edits_of_fp32: int
    edits_of_int8: int


def read_texts(predictions: Mapping[str, Array]) -> ReadTexts | None:
    """The texts of stored predictions; None where they, or their labels, are no texts."""
    stored = take_answers(dict(predictions))
    outputs, labels = stored.get("outputs"), stored.get("labels")
    if outputs is None or labels is None or labels.dtype.kind not in "iu" or len(outputs) != len(labels):
        return None
    if not (are_texts(outputs) and are_texts(labels)):
        return None
    return ReadTexts(
        written=tuple(read_text(row).strip() for row in outputs),
        references=tuple(read_text(row).strip() for row in labels),
    )


def list_changes(int8: ReadTexts, fp32: ReadTexts) -> tuple[TextChange, ...]:
    """The examples whose text changed, those with most edits between the two texts first."""
    changes = [
        TextChange(
            position=position,
            reference=reference,
            fp32=old,
            int8=new,
            edits=count_edits(new, old),
            edits_of_fp32=count_edits(old, reference),
            edits_of_int8=count_edits(new, reference),
        )
        for position, (new, old, reference) in enumerate(zip(int8.written, fp32.written, fp32.references, strict=False))
        if new != old
    ]
    return tuple(sorted(changes, key=lambda change: (-change.edits, change.position)))


def keep_here(pairs: Iterable[tuple[Path, Path]], data: Data, folder: Path, *, progress: Progress) -> int:
    """Writes ``lines/`` of a run's folder; returns how many pictures there are. ``pairs``: files of predictions, of an
    int8 variant and of its fp32. 0 where the examples are no images, or their answers no texts."""
    images = find_pictures(data._raw("evaluate")[0]) if data.inputs == 1 else None
    if images is None:
        return 0
    positions = set[int]()
    for file, baseline in pairs:
        int8, fp32 = read_texts(load_predictions(file)), read_texts(load_predictions(baseline))
        if int8 is not None and fp32 is not None:
            positions |= {change.position for change in list_changes(int8, fp32)[:MOST]}
    if positions:
        progress("keep pictures of lines whose text changed", 0.8)
        atomic.make_folder(folder / FOLDER)
    for position in sorted(positions):
        suffix, content = draw_line(images.pixels(position))
        with atomic.replace_file(folder / FOLDER / f"{position:06d}{suffix}") as part:
            part.write_bytes(content)
    return len(positions)


def draw_line(pixels: Array) -> tuple[str, bytes]:
    """The suffix and bytes of a small picture of a line (height, width, channels), without the padding behind it."""
    from PIL import Image

    last = pixels[:1, -1:]
    used = np.flatnonzero((pixels != last).any(axis=(0, 2)))
    pixels = pixels[:, : int(used[-1]) + 1] if len(used) else pixels
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    image.thumbnail(SIDES, Image.Resampling.BICUBIC)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=85)
    return ".jpg", stream.getvalue()


def find_stored(folder: Path, position: int) -> tuple[str, bytes] | None:
    """The media type and bytes of an example's picture in a run's folder; None where there is none."""
    for suffix, media in SUFFIXES.items():
        file = folder / FOLDER / f"{position:06d}{suffix}"
        if file.is_file():
            return media, regular_file.read_bytes(file)
    return None
