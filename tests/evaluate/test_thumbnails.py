"""Rules of qbench/evaluate/thumbnails.py: which examples are images, how they look, and that a report shows them."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import CASE, FP32, accuracy, fp32, info, int8
from made_runs import HOSTILE, Page, Raw, flipped_run, predictions, quiet, run_folder, write_with_predictions
from PIL import Image

from qbench.evaluate import thumbnails
from qbench.record import jsonl
from qbench.report.build import build_report

BYTES = np.linspace(0, 255, 2 * 3 * 8 * 8).astype(np.uint8)


@pytest.mark.parametrize(
    ("raw", "size"),
    [
        (BYTES.reshape(2, 3, 8, 8), (8, 8, 3)),
        (BYTES.reshape(2, 8, 8, 3), (8, 8, 3)),
        (BYTES.reshape(6, 8, 8), (8, 8, 1)),
        (BYTES.reshape(6, 8, 8, 1), (8, 8, 1)),
        (BYTES.reshape(6, 1, 8, 8), (8, 8, 1)),
        (BYTES.reshape(16, 3, 8, 1), None),
        (BYTES.reshape(16, 1, 3, 8), None),
        (BYTES.reshape(16, 3, 8), None),  # no image is 3 pixels high
        (BYTES.reshape(12, 4, 8), (4, 8, 1)),
        (np.tile(BYTES[:4], (1, 4, 1024)), (4, 4096, 1)),
        (np.tile(BYTES[:4], (1, 4, 1025)), None),
        (BYTES.reshape(6, 64), None),
        (BYTES.reshape(1, 2, 3, 8, 8), None),
        (BYTES.reshape(8, 6, 8), (6, 8, 1)),
        (BYTES.reshape(2, 6, 8, 4), None),
        (BYTES.reshape(6, 8, 8) > 100, None),
        (BYTES[:0].reshape(0, 8, 8), None),
        (np.zeros((2, 3, 8, 8), dtype=np.uint8), None),
        (np.full((2, 3, 8, 8), np.nan), None),
    ],
)
def test_images_are_told_by_their_shape(raw: np.ndarray, size: tuple[int, int, int] | None) -> None:
    """One or three channels, first or last, or none; rows of features and values that are all equal are no images."""
    pictures = thumbnails.find_pictures(raw)
    assert (pictures.pixels(0).shape if pictures else None) == size


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        (np.array([0, 127], np.uint8), (0, 127)),
        (np.array([5, 128], np.uint8), (0, 255)),
        (np.array([0, 200], np.int16), (0, 200)),
        (np.array([0.0, 0.5]), (0, 0.5)),
        (np.array([0.25, 0.75]), (0, 1)),
        (np.array([0.0, 1.0]), (0, 1)),
        (np.array([0.0, 1.25]), (0, 1.25)),
        (np.array([-0.25, 0.75]), (-0.25, 0.75)),
        (np.array([2.0, 2.0]), None),
        (np.array([0.0, np.inf]), None),
    ],
)
def test_black_and_white_are_those_of_the_type_where_values_fill_it(values: np.ndarray, limits: Any) -> None:
    """Bytes beyond the lower half, floats within 0 and 1; else what is least and greatest."""
    assert thumbnails._limits(values) == limits


@pytest.mark.parametrize(
    ("side", "suffix", "size"), [(64, ".png", 64), (65, ".jpg", 65), (96, ".jpg", 96), (97, ".jpg", 96)]
)
def test_a_picture_is_whole_up_to_64_pixels_and_made_smaller_beyond_96(side: int, suffix: str, size: int) -> None:
    """By its longer side."""
    kind, content = thumbnails.thumbnail(np.resize(BYTES, (side, 20, 1)))
    assert kind == suffix
    assert Image.open(io.BytesIO(content)).size[1] == size


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (np.array([0, 100, 200], dtype=np.uint8), [0, 100, 200]),
        (np.array([0, 8, 16], dtype=np.uint8), [0, 128, 255]),
        (np.array([0.0, 0.5, 0.8]), [0, 128, 204]),
        (np.array([-2.0, 0.0, 2.0]), [0, 128, 255]),
    ],
)
def test_brightness_is_kept_where_it_is_known(values: np.ndarray, shown: list[int]) -> None:
    """Bytes and shares of one are shown as they are; the digits' 0 to 16 and standardized values are stretched."""
    raw = np.zeros((1, 4, 4), dtype=values.dtype)
    raw[:] = values[1]
    raw[0, 0, :3] = values
    pictures = thumbnails.find_pictures(raw)
    assert pictures is not None
    assert pictures.pixels(0)[0, :3, 0].tolist() == shown


def test_thumbnails_are_small_and_exact_where_they_can_be() -> None:
    """An image of few pixels keeps every one of them; a photo becomes a small JPEG of at most 96 pixels a side."""
    small = np.random.default_rng(0).integers(0, 256, (28, 20, 1), dtype=np.uint8)
    suffix, content = thumbnails.thumbnail(small)
    assert suffix == ".png"
    assert (np.asarray(Image.open(io.BytesIO(content))) == small[..., 0]).all()
    photo = np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)
    suffix, content = thumbnails.thumbnail(photo)
    assert (suffix, Image.open(io.BytesIO(content)).size) == (".jpg", (64, 96))
    assert Image.open(io.BytesIO(content)).quantization[0][0] == 5  # type: ignore[attr-defined]  # quality 85: 30 % of 16
    assert len(content) < 12_000
    assert thumbnails.thumbnail(photo) == (suffix, content)


def test_each_flipped_example_is_kept_once_under_its_position(tmp_path: Path) -> None:
    """The images in the folder are those of the flipped examples, at most ``MOST`` of each kind of a variant alone."""
    folder, pairs = flipped_run(tmp_path / "run", 60)
    images = np.random.default_rng(1).integers(0, 256, (200, 1, 12, 12), dtype=np.uint8)
    told: list[tuple[str, float]] = []
    count = thumbnails.keep_here(pairs, Raw((images,)), folder, progress=lambda *step: told.append(step))
    assert (count, told) == (2 * thumbnails.MOST, [("keep images of flipped examples", 0.5)])
    names = sorted(int(path.stem) for path in (folder / "flips").iterdir())
    assert names == [*range(12), *range(30, 42)]
    assert (np.asarray(Image.open(folder / "flips" / "000031.png")) == images[31, 0]).all()


def test_examples_that_flip_in_several_variants_are_kept_too(tmp_path: Path) -> None:
    """However sure fp32 was of them: the report shows first what flips in most variants."""
    folder, pairs = flipped_run(tmp_path / "run", 60)
    images = np.random.default_rng(1).integers(0, 256, (200, 1, 12, 12), dtype=np.uint8)
    assert thumbnails.keep_here([*pairs, *pairs], Raw((images,)), folder, progress=quiet) == 60


def test_of_many_that_flip_in_several_variants_96_are_kept(tmp_path: Path) -> None:
    """Beside the first of each kind; the first in their order, where all flip in as many."""
    folder, pairs = flipped_run(tmp_path / "run", 200)
    images = np.random.default_rng(1).integers(0, 256, (200, 12, 12), dtype=np.uint8)
    kept = thumbnails.keep_here([*pairs, *pairs], Raw((images,)), folder, progress=quiet)
    names = sorted(int(path.stem) for path in (folder / "flips").iterdir())
    assert (kept, names) == (108, [*range(96), *range(100, 112)])


def test_the_first_256_examples_tell_the_brightness() -> None:
    """What is darker or brighter behind them is black and white."""
    raw = np.full((258, 4, 4), 100.0)
    raw[0, 0, :2], raw[256, 0, :3], raw[255, 3] = (50.0, 149.0), (20.0, 100.0, 400.0), 150.0
    pictures = thumbnails.find_pictures(raw)
    assert pictures is not None
    assert (pictures.low, pictures.high) == (50.0, 150.0)
    assert pictures.pixels(256)[0, :, 0].tolist() == [0, 128, 255, 128]


def test_where_nothing_flips_there_is_no_folder(tmp_path: Path) -> None:
    """An empty one would say that something was looked for and lost."""
    folder, pairs = flipped_run(tmp_path / "run")
    images = np.random.default_rng(1).integers(0, 256, (200, 12, 12), dtype=np.uint8)
    same = [(baseline, baseline) for _, baseline in pairs]
    assert thumbnails.keep_here(same, Raw((images,)), folder, progress=quiet) == 0
    assert not (folder / "flips").exists()


@pytest.mark.parametrize("arrays", [(np.zeros((200, 5)),), (np.zeros((200, 8, 8)),) * 2])
def test_what_is_no_image_is_not_kept(tmp_path: Path, arrays: tuple[np.ndarray, ...]) -> None:
    """Features and models of several inputs leave no folder; the report still lists the flips."""
    folder, pairs = flipped_run(tmp_path / "run")
    assert thumbnails.keep_here(pairs, Raw(arrays), folder, progress=quiet) == 0
    assert not (folder / "flips").exists()
    assert "photo/21 (1\xa0→\xa02)" in build_report(folder).read_text(encoding="utf-8")


def test_the_report_shows_them_and_stays_small(tmp_path: Path) -> None:
    """Each image stands in the page as a data: address with its words, and 40 photos leave it well below 2 MB."""
    folder, pairs = flipped_run(tmp_path / "run")
    photos = np.random.default_rng(1).integers(0, 256, (200, 224, 224, 3), dtype=np.uint8)
    thumbnails.keep_here([*pairs, *pairs], Raw((photos,)), folder, progress=quiet)
    page = build_report(folder).read_text(encoding="utf-8")
    shown = re.findall(r'<img src="(data:image/[a-z]+;base64,[^"]+)" alt="([^"]+)"', page)
    assert len(shown) == 40
    assert ("example photo/21, label 1, right to wrong") in [words for _, words in shown]
    assert len(page) < 1_000_000


def test_a_gallery_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images beyond the page's budget stay in the folder, and the page says how many."""
    from qbench.report import flip_gallery

    folder, pairs = flipped_run(tmp_path / "run")
    images = np.random.default_rng(1).integers(0, 256, (200, 20, 20), dtype=np.uint8)
    thumbnails.keep_here([*pairs, *pairs], Raw((images,)), folder, progress=quiet)
    size = (folder / "flips" / "000000.png").stat().st_size
    monkeypatch.setattr(flip_gallery, "MOST_BYTES", int(size * 5.5))
    page = build_report(folder).read_text(encoding="utf-8")
    assert 4 <= page.count("<img ") <= 6
    assert f"{40 - page.count('<img ')} more images lie in the run's folder" in page


def test_hostile_names_of_examples_stay_text(tmp_path: Path) -> None:
    """An id may hold anything: in the page it opens no element and leaves no attribute, in Markdown no cell."""
    folder = run_folder(tmp_path / "run", [], info((FP32, CASE)))
    names = {"ids": np.array([f"{HOSTILE}{i}".replace("\x00", "") for i in range(200)])}
    base, own = (predictions([answer] * 200, [1] * 200) | names for answer in (1, 2))
    counts = accuracy(harmful=200, n=200, right=200)
    records = [write_with_predictions(folder, fp32(), base), write_with_predictions(folder, int8(accuracy=counts), own)]
    jsonl.write(folder / "records.jsonl", records)
    pairs = [(folder / str(records[1].predictions), folder / str(records[0].predictions))]
    images = np.random.default_rng(1).integers(0, 256, (200, 20, 20), dtype=np.uint8)
    thumbnails.keep_here(pairs, Raw((images,)), folder, progress=quiet)
    page = Page(build_report(folder).read_text(encoding="utf-8"))
    assert len(page.all("script")) == 1
    assert len(page.all("img")) == thumbnails.MOST
    assert all(str(image["src"]).startswith("data:image/png;base64,") for image in page.all("img"))
    assert all(set(image) == {"src", "alt", "width", "height"} for image in page.all("img"))
    rows = [line for line in (folder / "summary.md").read_text(encoding="utf-8").splitlines() if "200 / 0" in line]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in rows if line.startswith("| net/")] == [9]
    assert not any("<script>" in row for row in rows)
