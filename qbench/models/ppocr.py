"""``ppocr-detector`` and ``ppocr-recognizer``: PaddleOCR's small networks as ONNX files, of the package rapidocr.

The detector (PP-OCRv6 small, differentiable binarization), (n, 3, height, width) -> (n, 1, height, width): how surely a
pixel lies in the middle of a line of text; sides are multiples of 32. Its answers are boxes, upright ones: of each
connected part above 0.3 the rectangle around it, widened by 1.6 times its area over its circumference, scored by its
mean. That is rapidocr's own way, but for slanted boxes and its dilation by one pixel.

The recognizer (PP-OCRv6 small), (n, 3, 48, width) -> (n, width / 8, 18,710) shares of letters; its answers are texts by
CTC's best path. Both take (x / 255 - 0.5) / 0.5, in PaddleOCR's order blue first.
Sources: Liao et al., "Real-time Scene Text Detection with Differentiable Binarization" (2020), arXiv:1911.08947;
Du et al., "SVTR: Scene Text Recognition with a Single Visual Model" (2022), arXiv:2205.00159.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from qbench.errors import ModelError
from qbench.models.base import BuiltIn

if TYPE_CHECKING:  # a list of the models needs no numpy
    from numpy.typing import NDArray

    from qbench.models.ctc import BestPath

PACKAGE = "rapidocr"
VERSION = "3.10.0"
LEAST_SHARE, LEAST_SCORE, WIDENING, SHORTEST = 0.3, 0.5, 1.6, 3  # rapidocr's own
Array: TypeAlias = "NDArray[Any]"


def find_file(name: str) -> Path:
    """The ONNX file in the package; raises ``ModelError`` where this version carries another one, or none."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        if (file := Path(folder) / "models" / name).is_file():
            return file
    raise ModelError(f"{PACKAGE}: the package has no models/{name}; pip install '{PACKAGE}=={VERSION}'")


_RECOGNIZER_FILE: Callable[[], Path] = partial(find_file, "PP-OCRv6_rec_small.onnx")
_DETECTOR_FILE: Callable[[], Path] = partial(find_file, "PP-OCRv6_det_small.onnx")


class _ReadLines:
    """The texts of the recognizer's shares; its letters stand in its file, which is read once."""

    @functools.cached_property
    def _best_path(self) -> BestPath:
        from qbench.models.ctc import BestPath, read_alphabet

        return BestPath(read_alphabet(_RECOGNIZER_FILE()))

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The letters of its places behind the blank."""
        return self._best_path.alphabet

    def __call__(self, shares: Array) -> list[str]:
        return self._best_path(shares)


def find_boxes(shares: Array) -> list[Array]:
    """The boxes of each image, rows ``x1, y1, x2, y2, score, 0``, the best first; shares are (n, 1, height, width)."""
    import numpy as np
    from scipy import ndimage

    images = list[Array]()
    for image in shares[:, 0]:
        parts, _ = ndimage.label(image > LEAST_SHARE)
        boxes = [_widen(image, place) for place in ndimage.find_objects(parts)]
        rows = np.array([box for box in boxes if box is not None], dtype=np.float32).reshape(-1, 6)
        images.append(rows[np.argsort(-rows[:, 4], kind="stable")])
    return images


def _widen(image: Array, place: tuple[slice, slice]) -> list[float] | None:
    """The row of a box around one part; None where it is too small or not sure enough."""
    height, width = (side.stop - side.start for side in place)
    score = float(image[place].mean())
    if min(height, width) < SHORTEST or score < LEAST_SCORE:
        return None
    margin = WIDENING * height * width / (2 * (height + width))
    low = [max(0.0, side.start - margin) for side in place]
    high = [min(float(most), side.stop + margin) for side, most in zip(place, image.shape, strict=True)]
    return [low[1], low[0], high[1], high[0], score, 0.0]


RECOGNIZER = BuiltIn(
    name="ppocr-recognizer",
    summary="the text of a printed line, an ONNX model with CTC, 18,709 letters",
    kind="onnx",
    build=None,
    weights=_RECOGNIZER_FILE,
    packages=(PACKAGE,),
    extra="zoo",
    postprocess=_ReadLines(),
)
DETECTOR = BuiltIn(
    name="ppocr-detector",
    summary="the lines of text on a page, an ONNX model with a share for each pixel",
    kind="onnx",
    build=None,
    weights=_DETECTOR_FILE,
    packages=(PACKAGE,),
    extra="zoo",
    labels="boxes",
    postprocess=find_boxes,
)
