"""Rules of datasets/image.py: where the pixels of an image file come to lie, and which files are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from qbench.datasets import image as images
from qbench.datasets.image import (
    Shape,
    crop_like,
    fit_line,
    is_below,
    pixels,
    read_fitted,
    read_images,
    read_lines,
)
from qbench.datasets.options import ImageOptions
from qbench.datasets.preprocessing import Preprocessing
from qbench.errors import DataError

PLAIN = Shape(size=None, resize=None, channels=1, layout="nchw")


def places(width: int, height: int) -> Image.Image:
    """A grey image whose pixels say where they are: 16 times the row, plus the column."""
    return Image.fromarray((16 * np.arange(height)[:, None] + np.arange(width)).astype(np.uint8))


class Sized(Image.Image):
    """An image of that size without its pixels."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self._size, self._mode = (width, height), "RGB"


def shape(size: tuple[int, int] | None, resize: int | None = None, channels: int = 1) -> Shape:
    return Shape(size=size, resize=resize, channels=channels, layout="nchw")


@pytest.mark.parametrize(
    ("size", "resize", "corner"),
    [((4, 4), 6, (3, 1)), ((4, 5), 6, (2, 1)), ((3, 10), 6, (0, 2)), ((6, 1), None, None), ((6, 10), None, (0, 0))],
)
def test_the_centre_is_cut_out(size: tuple[int, int], resize: int | None, corner: tuple[int, int] | None) -> None:
    """Of an image of 10 x 6 pixels that keeps its size, halves to even."""
    cut = pixels(places(10, 6), shape(size, resize))[..., 0]
    assert cut.shape == size
    if corner is not None:
        assert cut[0].tolist() == [16 * corner[1] + corner[0] + column for column in range(size[1])]
        assert cut[:, 0].tolist() == [16 * (corner[1] + row) + corner[0] for row in range(size[0])]
    assert (np.asarray(crop_like(places(10, 6), shape(size, resize))) == cut).all()


@pytest.mark.parametrize(
    ("width", "height", "resize", "size", "resized"),
    [
        (20, 10, 5, (5, 5), (10, 5)),
        (10, 20, 5, (5, 5), (5, 10)),
        (20, 10, None, (5, 5), (10, 5)),
        (20, 10, None, (10, 10), (20, 10)),
        (20, 10, None, (4, 16), (16, 8)),
        (11, 10, 5, (5, 5), (5, 5)),
        (11, 11, 15, (15, 15), (15, 15)),
    ],
)
def test_the_short_side_is_resized_or_the_size_is_covered(
    width: int, height: int, resize: int | None, size: tuple[int, int], resized: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The other side follows, cut down to whole pixels but for the last digit of a product."""
    asked: list[tuple[int, int]] = []
    resize_image = Image.Image.resize

    def note(image: Image.Image, to: tuple[int, int], *rest: object) -> Image.Image:
        asked.append(to)
        return resize_image(image, to, *rest)

    monkeypatch.setattr(Image.Image, "resize", note)
    assert pixels(Image.new("L", (width, height)), shape(size, resize)).shape == (*size, 1)
    assert asked == ([] if resized == (width, height) else [resized])


@pytest.mark.parametrize(
    ("width", "height", "resize", "size", "said"),
    [
        (10, 10, 4, (5, 5), "4x4 after resize, smaller than size 5x5"),
        (20, 10, 5, (6, 4), "10x5 after resize, smaller than size 4x6"),
        (10, 20, 5, (4, 6), "5x10 after resize, smaller than size 6x4"),
    ],
)
def test_an_image_that_is_smaller_than_what_is_cut_out_is_refused(
    width: int, height: int, resize: int, size: tuple[int, int], said: str
) -> None:
    """On either side."""
    with pytest.raises(DataError, match=f"^{said}$"):
        pixels(Image.new("L", (width, height)), shape(size, resize))


def test_images_stand_upright_in_the_channels_that_are_asked_for(tmp_path: Path) -> None:
    """As their camera was held, also where EXIF is damaged; grey becomes three equal channels, colour grey."""
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    places(3, 2).save(tmp_path / "a.png", exif=exif)
    turned = read_images([tmp_path / "a.png"], PLAIN, "d")
    assert turned[0, 0].tolist() == [[16, 0], [17, 1], [18, 2]]
    colour = read_images([tmp_path / "a.png"], shape(None, channels=3), "d")
    assert colour.shape == (1, 3, 3, 2)
    assert (colour == turned).all()
    last = read_images([tmp_path / "a.png"], Shape(size=None, resize=None, channels=3, layout="nhwc"), "d")
    assert last.shape == (1, 3, 2, 3)
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 200, 100, 50])
    palette.putpixel((1, 0), 1)
    palette.info["transparency"] = 1
    assert pixels(palette, shape(None, channels=3)).tolist() == [[[10, 20, 30], [200, 100, 50]]]


@pytest.mark.parametrize("mode", ["I", "F", "I;16"])
def test_more_than_eight_bits_are_not_clipped(mode: str) -> None:
    """Whoever has them scales them."""
    with pytest.raises(DataError, match=rf"^more than 8 bits a channel \(mode {mode}\); convert it to 8 bits first$"):
        pixels(Image.new(mode, (2, 2)), PLAIN)


def test_an_image_has_so_many_pixels_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger one is a mistake, or an attack on memory."""
    monkeypatch.setattr(images, "MAX_PIXELS", 6)
    assert pixels(places(3, 2), PLAIN).shape == (2, 3, 1)
    with pytest.raises(DataError, match=r"^7x1 is more than 6 pixels, refused as a decompression bomb$"):
        pixels(places(7, 1), PLAIN)


@pytest.mark.parametrize(
    ("width", "height", "keep_ratio", "inner", "corner"),
    [
        (20, 10, True, (8, 4), (0, 2)),
        (10, 20, True, (4, 8), (2, 0)),
        (20, 10, False, (8, 8), (0, 0)),
        (8, 5, True, (8, 5), (0, 1)),
        (100, 1, True, (8, 1), (0, 3)),
        (4, 4, True, (8, 8), (0, 0)),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_whole_image_lies_on_grey_or_is_stretched(
    tmp_path: Path,
    width: int,
    height: int,
    keep_ratio: bool,
    inner: tuple[int, int],
    corner: tuple[int, int],
    channels: int,
) -> None:
    """And it is told how a point of the file comes there; never less than a pixel is left of it."""
    Image.new("L", (width, height), 7).save(tmp_path / "a.png")
    batch, moves = read_fitted([tmp_path / "a.png"], shape((8, 8), channels=channels), keep_ratio=keep_ratio, where="d")
    expected = np.full((8, 8), 114)
    expected[corner[1] : corner[1] + inner[1], corner[0] : corner[0] + inner[0]] = 7
    assert batch.shape == (1, channels, 8, 8)
    assert (batch[0] == expected).all()
    assert moves.tolist() == [[inner[0] / width, inner[1] / height, *corner, width, height]]


@pytest.mark.parametrize(
    ("width", "height", "stretch", "long"),
    [(10, 4, False, 20), (7, 3, False, 19), (40, 4, False, 24), (2, 4, True, 24), (12, 4, False, 24)],
)
def test_a_line_has_the_height_and_paper_behind_its_end(width: int, height: int, stretch: bool, long: int) -> None:
    """Where it is shorter; a longer one is squeezed. 24 x 8 pixels, so that each of its own becomes two."""
    for channels, padding in ((1, (9,)), (1, (9, 8)), (3, (9, 8, 7))):
        line = fit_line(
            Image.new("L", (width, height), 200), shape((8, 24), channels=channels), stretch=stretch, padding=padding
        )
        assert line.shape == (8, 24, channels)
        assert (line[:, :long] == 200).all()
        assert (line[:, long:] == padding[:channels]).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_where_a_line_is_transparent_there_is_paper(mode: str) -> None:
    """Not the ink that happens to lie below it."""
    line = Image.new(mode, (8, 8), 0)
    if mode == "P":
        line.putpalette([0, 0, 0])
        line.info["transparency"] = 0
    assert (fit_line(line, shape((8, 8)), stretch=False, padding=(0,)) == 255).all()
    line = Image.new("L", (8, 8), 0)
    assert (fit_line(line, shape((8, 8)), stretch=False, padding=(0,)) == 0).all()


def test_files_that_cannot_be_used_are_listed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first by name, and how many more there are."""
    monkeypatch.setattr(images, "MAX_NAMED", 2)
    good, *broken = (tmp_path / f"{name}.png" for name in "gabc")
    places(2, 2).save(good)
    for file in broken:
        file.write_bytes(b"no image")
    whole = shape((2, 2))
    for count, more in ((3, r"\n  and 1 more$"), (2, "$")):
        files = [broken[0], good, *broken[1:count]]
        expected = (
            rf"^d: {count} of {count + 1} images cannot be used:\n  .*a\.png: unreadable: .*\n  .*b\.png: .*{more}"
        )
        for read in (
            lambda files: read_images(files, PLAIN, "d"),
            lambda files: read_fitted(files, whole, keep_ratio=True, where="d"),
            lambda files: read_lines(files, whole, stretch=False, padding=(0,), where="d"),
        ):
            with pytest.raises(DataError, match=expected) as raised:
                read(files)
            assert ("c.png" in str(raised.value)) is False


def test_images_of_different_sizes_ask_for_one(tmp_path: Path) -> None:
    """The first two that differ, as width and height."""
    for name, size in (("a", (3, 2)), ("b", (3, 2)), ("c", (2, 5))):
        Image.new("L", size).save(tmp_path / f"{name}.png")
    files = [tmp_path / f"{name}.png" for name in "abc"]
    with pytest.raises(
        DataError, match=r"^d: images have different sizes: b\.png is 3x2, c\.png is 2x5 pixels; set size$"
    ):
        read_images(files, PLAIN, "d")
    lines = read_lines(files, shape((4, 4)), stretch=True, padding=(0,), where="d")
    assert lines.shape == (3, 1, 4, 4)


def test_a_list_names_files_of_its_folder(tmp_path: Path) -> None:
    """No other place, and no folder."""
    (tmp_path / "inner").mkdir()
    for file in (tmp_path / "a.png", tmp_path / "inner/b.png"):
        file.write_bytes(b"")
    names = ("a.png", "inner/b.png", "inner", "none.png", "../a.png", "inner/../a.png", str(tmp_path / "a.png"))
    assert [is_below(tmp_path, name) for name in names] == [True, True, *[False] * 5]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Preprocessing(scale=1 / 255)),
        ({"layout": "nhwc", "scale": 2}, Preprocessing(scale=2.0, channel_axis=3)),
        ({"order": "bgr"}, Preprocessing(scale=1 / 255, reverse_channels=True)),
    ],
)
def test_pixels_become_what_a_network_takes(options: dict[str, object], expected: Preprocessing) -> None:
    """0 to 1 unless a scale is written, along the channels of the layout, in the order of the model."""
    assert images.read_preprocessing(ImageOptions.model_validate(options)) == expected


def test_no_image_takes_more_than_two_hundred_megabytes() -> None:
    """64 million pixels of three bytes are read, one more is not."""
    images._require_usable(Sized(8000, 8000))
    with pytest.raises(DataError, match=r"^64000001x1 is more than 64000000 pixels, refused as a decompression bomb$"):
        images._require_usable(Sized(64_000_001, 1))


def test_a_hundred_images_that_cannot_be_used_are_named() -> None:
    """The others are counted."""
    problems = [f"p{number}" for number in range(102)]
    for count, more in ((100, "p99"), (101, "p99\n  and 1 more"), (102, "p99\n  and 2 more")):
        with pytest.raises(DataError, match=rf"^d: {count} of 200 images cannot be used:\n  p0\n  p1\n") as told:
            images._raise_unreadable(problems[:count], 200, "d")
        assert str(told.value).endswith(more)
