"""Image files as uint8 arrays of one shape: decoded, resized, centre-cropped."""

from __future__ import annotations

import contextlib
import math
import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets import preprocessing
from qbench.datasets.base import Array
from qbench.datasets.option_values import ORDERS
from qbench.errors import DataError
from qbench.files import regular_file

if TYPE_CHECKING:
    from PIL.Image import Image

# 64 million pixels decode to 192 MB; a larger image is a mistake or an attack on memory.
MAX_PIXELS = 64_000_000
DEEP_MODES = ("I", "F")
MAX_NAMED = 100
GREY = 114  # beside an image in a letterbox, as detectors are trained
Read = TypeVar("Read")
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What an image becomes: the short side ``resize`` (None: just cover ``size``), then the centre of ``size``
    (height, width; None: as it is), ``channels`` 3 (RGB) or 1 (grey), ``layout`` of the batch."""

    size: tuple[int, int] | None
    resize: int | None
    channels: int
    layout: Literal["nchw", "nhwc"]


def shape_of(options: opt.ImageOptions) -> Shape:
    """What the options ``size``, ``resize``, ``channels`` and ``layout`` of a data set make of its images."""
    return Shape(size=options.size, resize=options.resize, channels=options.channels, layout=options.layout)


def read_preprocessing(options: opt.ImageOptions) -> preprocessing.Preprocessing:
    """What ``scale`` (default 1/255), ``mean``, ``std`` and ``order`` (``bgr``: the model takes blue first, as OpenCV
    reads images; ``mean`` and ``std`` are then in that order, too) make of such images."""
    axis = 1 if options.layout == "nchw" else 3
    return preprocessing.read_preprocessing(
        options, scale=1 / 255, channel_axis=axis, reverse_channels=options.order != ORDERS[0]
    )


def is_below(folder: Path, name: str) -> bool:
    """Whether a name is that of a file in the folder: a list of images may come from anybody."""
    return ".." not in Path(name).parts and not Path(name).is_absolute() and (folder / name).is_file()


def read_images(files: Sequence[Path], shape: Shape, where: str) -> Array:
    """uint8 of shape (n, channels, height, width), or channels last; one error lists all unreadable files."""
    images: list[Array] = []
    problems: list[str] = []
    for file in files:
        try:
            images.append(_decode(file, lambda image: pixels(image, shape)))
        except DataError as error:
            problems.append(f"{file}: {error}")
    _raise_unreadable(problems, len(files), where)
    sizes = {image.shape: file for image, file in zip(images, files, strict=True)}
    if len(sizes) > 1:
        (first, a), (other, b), *_ = sizes.items()
        raise DataError(
            f"{where}: images have different sizes: {a.name} is {first[1]}x{first[0]}, {b.name} is "
            f"{other[1]}x{other[0]} pixels; set size"
        )
    return _lay_out(images, shape)


def _lay_out(images: Sequence[Array], shape: Shape) -> Array:
    """Images (height, width, channels) of one size as a batch in the layout."""
    batch = np.stack(images)
    return batch if shape.layout == "nhwc" else np.ascontiguousarray(batch.transpose(0, 3, 1, 2))


def _raise_unreadable(problems: Sequence[str], count: int, where: str) -> None:
    if problems:
        more = f"\n  and {len(problems) - MAX_NAMED} more" if len(problems) > MAX_NAMED else ""
        listing = "\n  ".join(problems[:MAX_NAMED])
        raise DataError(f"{where}: {len(problems)} of {count} images cannot be used:\n  {listing}{more}")


def _decode(file: Path, read: Callable[[Image], Read]) -> Read:
    """What is read of an image file; raises ``DataError`` where it is damaged or too large."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # Pillow only warns below twice its limit; here the limit is a limit.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with regular_file.open_file(file) as stream, Image.open(stream) as image:
                return read(image)
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise DataError("too many pixels, refused as a decompression bomb") from error
    # What Pillow's decoders raise for damaged files (UnidentifiedImageError is an OSError).
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error) as error:
        raise DataError(f"unreadable: {error}") from error


def pixels(image: Image, shape: Shape) -> Array:
    """An opened image as uint8 (height, width, channels); raises ``DataError`` where it is too large, deep or small."""
    _require_usable(image)
    _stand_upright(image)
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    image = _cropped(image.convert("RGB" if shape.channels == 3 else "L"), shape)
    pixels: Array = np.array(image, dtype=np.uint8)
    return pixels.reshape(image.height, image.width, shape.channels)


def _require_usable(image: Image) -> None:
    """Raises ``DataError`` for an image that is too large, or deeper than 8 bits."""
    if image.width * image.height > MAX_PIXELS:
        raise DataError(
            f"{image.width}x{image.height} is more than {MAX_PIXELS} pixels, refused as a decompression bomb"
        )
    if image.mode.partition(";")[0] in DEEP_MODES:  # Pillow would clip, not scale
        raise DataError(f"more than 8 bits a channel (mode {image.mode}); convert it to 8 bits first")


def _stand_upright(image: Image) -> None:
    """Turns an image in place as its camera was held, by EXIF's orientation; leaves it where EXIF is damaged."""
    from PIL import ImageOps

    image.load()
    with contextlib.suppress(OSError, SyntaxError, ValueError, TypeError, KeyError, IndexError, struct.error):
        ImageOps.exif_transpose(image, in_place=True)


def crop_like(mask: Image, shape: Shape) -> Image:
    """A mask resized and cropped as its image is, without new values."""
    from PIL.Image import Resampling

    return _cropped(mask, shape, Resampling.NEAREST)


def read_fitted(files: Sequence[Path], shape: Shape, *, keep_ratio: bool, where: str) -> tuple[Array, Array]:
    """Images as uint8 (n, channels, height, width) or channels last, whole in ``shape.size``, and (n, 6) how each came
    there: ``x * a[0] + a[2]`` and ``y * a[1] + a[3]`` are where a point of the file lies in it; then its own size.

    With ``keep_ratio`` the image is centred on grey where its sides have another ratio (a letterbox), else stretched.
    It is not turned as its EXIF says: boxes are of its pixels as they are stored. One error lists what cannot be read.
    """
    assert shape.size is not None
    images, moves, problems = list[Array](), list[list[float]](), list[str]()
    for file in files:
        try:
            image, move = _decode(file, lambda opened: _fit(opened, shape, keep_ratio))
        except DataError as error:
            problems.append(f"{file}: {error}")
            continue
        images.append(image)
        moves.append(move)
    _raise_unreadable(problems, len(files), where)
    return _lay_out(images, shape), np.array(moves)


def _fit(image: Image, shape: Shape, keep_ratio: bool) -> tuple[Array, list[float]]:
    from PIL.Image import Resampling
    from PIL.Image import new as make_image

    _require_usable(image)
    assert shape.size is not None
    height, width = shape.size
    ratios = (width / image.width, height / image.height)
    if keep_ratio:
        ratios = (min(ratios), min(ratios))
    inner = tuple(max(1, round(side * ratio)) for side, ratio in zip((image.width, image.height), ratios, strict=True))
    mode = "RGB" if shape.channels == 3 else "L"
    corner = ((width - inner[0]) // 2, (height - inner[1]) // 2)
    moves = [inner[0] / image.width, inner[1] / image.height, *corner, image.width, image.height]
    converted = image.convert(mode)
    if inner != converted.size:
        converted = converted.resize((inner[0], inner[1]), Resampling.BILINEAR)
    canvas = make_image(mode, (width, height), (GREY,) * 3 if mode == "RGB" else GREY)
    canvas.paste(converted, corner)
    return np.array(canvas, dtype=np.uint8).reshape(height, width, shape.channels), moves


def read_lines(files: Sequence[Path], shape: Shape, *, stretch: bool, padding: Sequence[int], where: str) -> Array:
    """Lines of text as ``fit_line`` makes them, uint8 (n, channels, height, width) or channels last, turned as their
    EXIF says; one error lists all unreadable files."""
    images, problems = list[Array](), list[str]()

    def read(image: Image) -> Array:
        _require_usable(image)
        _stand_upright(image)
        return fit_line(image, shape, stretch=stretch, padding=padding)

    for file in files:
        try:
            images.append(_decode(file, read))
        except DataError as error:
            problems.append(f"{file}: {error}")
    _raise_unreadable(problems, len(files), where)
    return _lay_out(images, shape)


def fit_line(image: Image, shape: Shape, *, stretch: bool, padding: Sequence[int]) -> Array:
    """A line of text scaled to the height of ``shape.size``, uint8 (height, width, channels): with ``padding``, one
    number for each channel, behind its end where it is narrower than the width, squeezed to it where it is wider (or,
    with ``stretch``, narrower). Transparent pixels become white paper."""
    from PIL.Image import Resampling
    from PIL.Image import new as make_image

    assert shape.size is not None
    height, width = shape.size
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        paper = make_image("RGBA", image.size, (255, 255, 255, 255))
        paper.alpha_composite(image)
        image = paper
    mode = "RGB" if shape.channels == 3 else "L"
    long = width if stretch else min(width, math.ceil(height * image.width / image.height))
    scaled = image.convert(mode).resize((long, height), Resampling.BILINEAR)
    canvas = make_image(mode, (width, height), tuple(padding) if mode == "RGB" else padding[0])
    canvas.paste(scaled, (0, 0))
    return np.array(canvas, dtype=np.uint8).reshape(height, width, shape.channels)


def _cropped(image: Image, shape: Shape, resampling: int | None = None) -> Image:
    from PIL.Image import Resampling

    if shape.size is None:
        return image
    height, width = shape.size
    ratio = (
        max(height / image.height, width / image.width)
        if shape.resize is None
        else shape.resize / min(image.height, image.width)
    )
    # The long side is cut down, as torchvision does; the small term undoes float error in an exact product.
    resized = (int(image.width * ratio + 1e-6), int(image.height * ratio + 1e-6))
    if resized[0] < width or resized[1] < height:
        raise DataError(f"{resized[0]}x{resized[1]} after resize, smaller than size {width}x{height}")
    if resized != image.size:
        image = image.resize(resized, Resampling.BICUBIC if resampling is None else resampling)
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))
