"""Thumbnails of the examples that flip, kept in the run's folder while the data set is at hand.

    flips/000123.png    the evaluation example at position 123

A report is made from the run's folder alone, perhaps on another machine: what it shows must lie there.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qbench.evaluate import flips
from qbench.evaluate.predictions import load_predictions
from qbench.files import atomic, regular_file
from qbench.progress.callback import Progress

if TYPE_CHECKING:
    from qbench.data import Data

Array = NDArray[Any]
FOLDER = "flips"
SUFFIXES = {".png": "image/png", ".jpg": "image/jpeg"}
MOST = 12  # of each kind and variant; all flips are in flips.csv
MOST_SHARED = 96  # of those that flip in most variants
SIDE = 96  # pixels of the longer side; what is smaller is kept as it is
PLAIN = 64  # up to this side a PNG of every pixel is small, above it a JPEG is
SEEN = 256  # examples on whose values the brightness is fixed
# A side below or above is no image: a handful of features, or a row of samples.
SIDES = (4, 4096)


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Raw examples read as images: ``values`` (n x height x width x 1 or 3, or n x channels first); black is ``low``
    and white is ``high``."""

    values: Array
    channels_first: bool
    low: float
    high: float

    def pixels(self, position: int) -> Array:
        """One example as uint8, height x width x channels."""
        raw = np.asarray(self.values[position], dtype=np.float64)
        raw = raw.transpose(1, 2, 0) if self.channels_first else raw
        shown: Array = np.clip((raw - self.low) / (self.high - self.low) * 255 + 0.5, 0, 255).astype(np.uint8)
        return shown


def find_pictures(raw: Array) -> Pictures | None:
    """The examples as images, or None where their shape and type are no images'.

    Images are n x height x width, or 4 axes with 1 or 3 channels at the second or the last. Bytes that reach the upper
    half and floats within 0 and 1 keep their brightness, any other range is stretched to black and white.
    """
    if raw.dtype.kind not in "uif" or raw.ndim not in (3, 4) or len(raw) == 0:
        return None
    values = raw[..., None] if raw.ndim == 3 else raw
    first = raw.ndim == 4 and values.shape[1] in (1, 3)
    channels, *sides = values.shape[1:] if first else (values.shape[3], *values.shape[1:3])
    if channels not in (1, 3) or not all(SIDES[0] <= side <= SIDES[1] for side in sides):
        return None
    limits = _limits(np.asarray(values[:SEEN]))
    return None if limits is None else Pictures(values=values, channels_first=first, low=limits[0], high=limits[1])


def _limits(values: Array) -> tuple[float, float] | None:
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all() or high <= low:
        return None
    if values.dtype == np.uint8 and high > 127:
        return 0.0, 255.0
    if low >= 0 and values.dtype.kind == "f" and 0.5 < high <= 1:
        return 0.0, 1.0
    return low, high


def thumbnail(pixels: Array) -> tuple[str, bytes]:
    """The suffix and bytes of a small image file, the same bytes for the same pixels."""
    from PIL import Image

    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    plain = max(image.size) <= PLAIN
    if max(image.size) > SIDE:
        image.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC)
    stream = io.BytesIO()
    if plain:
        image.save(stream, "PNG", optimize=True)
    else:
        image.save(stream, "JPEG", quality=85)
    return (".png" if plain else ".jpg"), stream.getvalue()


def keep_here(pairs: Iterable[tuple[Path, Path]], data: Data, folder: Path, *, progress: Progress) -> int:
    """Writes ``flips/`` of a run's folder; returns how many images there are.

    ``pairs``: files of predictions, of an int8 variant and of its fp32. 0 where the examples are no images.
    """
    images = find_pictures(data._raw("evaluate")[0]) if data.inputs == 1 else None
    if images is None:
        return 0
    progress("keep images of flipped examples", 0.5)
    positions = sorted(_choose_positions(pairs))
    target = folder / FOLDER
    if positions:
        atomic.make_folder(target)
    for position in positions:
        _write(target, position, *thumbnail(images.pixels(position)))
    return len(positions)


def _choose_positions(pairs: Iterable[tuple[Path, Path]]) -> set[int]:
    """The positions of the first ``MOST`` flips of each kind and pair, and of those that flip in most pairs."""
    answers: dict[Path, flips.Answers | None] = {}
    positions: set[int] = set()
    counts: Counter[int] = Counter()
    for file, baseline in pairs:
        if baseline not in answers:
            answers[baseline] = flips.answers(load_predictions(baseline))
        int8, fp32 = flips.answers(load_predictions(file)), answers[baseline]
        if int8 is None or fp32 is None:
            continue
        flipped = flips.flips(int8, fp32)
        positions |= {flip.position for kind in flips.KINDS for flip in flips.first(flipped, kind, MOST)}
        counts.update(flip.position for flip in flipped)
    shared = sorted(counts, key=lambda position: (-counts[position], position))[:MOST_SHARED]
    return positions | {position for position in shared if counts[position] > 1}


def _write(folder: Path, position: int, suffix: str, content: bytes) -> None:
    with atomic.replace_file(folder / f"{position:06d}{suffix}") as part:
        part.write_bytes(content)


def stored(folder: Path, position: int) -> tuple[str, bytes] | None:
    """The media type and bytes of an example's thumbnail in a run's folder; None where there is none."""
    for suffix, media in SUFFIXES.items():
        file = folder / FOLDER / f"{position:06d}{suffix}"
        if file.is_file():
            return media, regular_file.read_bytes(file)
    return None
