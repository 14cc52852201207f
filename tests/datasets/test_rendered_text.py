"""Rendered lines and pages: the same everywhere but for the drawing of letters, with the texts and boxes of what stands
there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageFont

from qbench import registry
from qbench.datasets import rendered_text
from qbench.datasets.base import Dataset
from qbench.errors import DataError
from qbench.metrics.texts import read_text


def opened(value: str | None = None) -> Dataset:
    """The data set."""
    dataset: Dataset = registry.load("dataset", "rendered-text")(value, base=Path(), options={})
    return dataset


def test_texts_are_the_same_everywhere() -> None:
    """The words stand in the file; only letters are drawn by Pillow."""
    labels = np.asarray(opened().sample("test", 500, 0).labels)
    assert [read_text(row) for row in labels[:4]] == ["#680188 day", "for mill", "building", "station cash"]
    assert labels.shape == (500, 24)
    assert 8 < (labels >= 0).sum() / len(labels) < 14
    assert len({read_text(row) for row in labels}) > 480


def test_a_line_lies_at_the_left_on_what_becomes_0() -> None:
    """Of the height of the image; behind it is grey, which preprocessing makes 0."""
    dataset = opened()
    images = dataset.sample("test", 20, 0).inputs[0]
    assert images.shape[1:] == (3, 48, 320)
    behind = (images == rendered_text.GREY).all(axis=(1, 2))
    widths = [int(np.flatnonzero(~columns).max()) + 1 for columns in behind]
    assert 60 < min(widths) < max(widths) <= 320
    assert all(columns[width:].all() for columns, width in zip(behind, widths, strict=True))
    (values,) = dataset.preprocessing((images,))
    assert abs(values[:, :, :, -1]).min() == pytest.approx(0, abs=1 / 200)
    assert (values.min(), values.max()) == pytest.approx((-1, 1), abs=0.05)


def test_boxes_of_a_page_hold_its_letters() -> None:
    """Letters differ from the paper inside of the boxes; where there is no box is paper, but for noise and shade,
    behind which faint letters may drown."""
    dataset = opened("pages")
    examples = dataset.sample("test", 12, 0)
    assert dataset.classes == 1
    spread = []
    for image, rows in zip(examples.inputs[0], np.asarray(examples.labels), strict=True):
        inside = np.zeros(image.shape[1:], dtype=bool)
        for left, top, right, bottom, kind, _ in rows[rows[:, 4] >= 0]:
            assert 0 <= left < right <= rendered_text.PAGE
            assert 0 <= top < bottom <= rendered_text.PAGE
            assert kind == 0
            inside[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))] = True
        grey = image.astype(float).mean(axis=0)
        assert 0 < inside.mean() < 0.6
        spread.append(grey[inside].std() / grey[~inside].std())
    assert np.mean(np.array(spread) > 1) > 0.8
    assert np.median(spread) > 2


def test_splits_share_no_example_and_a_few_are_drawn_alone() -> None:
    """An example is drawn from its own seed."""
    train, test = (opened().load(split) for split in ("train", "test"))
    assert not {image.tobytes() for image in train.inputs[0]} & {image.tobytes() for image in test.inputs[0]}
    chosen = opened().sample("test", 3, 1)
    places = [test.ids.index(name) for name in chosen.ids]
    assert np.array_equal(chosen.inputs[0], test.inputs[0][places])


def test_only_two_kinds_are_there() -> None:
    """Lines where nothing is said."""
    assert (opened().name, opened("pages").name) == ("rendered-text:lines", "rendered-text:pages")
    with pytest.raises(DataError, match=r"expected lines or pages, got 'words'; write \{rendered-text: lines\}"):
        opened("words")


def test_letters_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where matplotlib came without them."""
    monkeypatch.setattr(rendered_text.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"letters \(DejaVuSans.ttf and others\) are not there; reinstall matplotlib"):
        opened()


class BlockLetters:
    """A font whose letters are all of one width, the same with every Pillow."""

    def __init__(self, file: str, size: int) -> None:
        self.name, self.size = Path(file).stem, size

    def getlength(self, text: str) -> float:
        """Half of the height for each letter."""
        return len(text) * self.size / 2

    def getbbox(self, text: str) -> tuple[float, float, float, float]:
        """The letters begin a pixel to the right and two below."""
        return 1, 2, self.getlength(text) + 3, self.size + 5

    def getmetrics(self) -> tuple[int, int]:
        """What is above the base line and below it."""
        return self.size, self.size // 4


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is asked of Pillow, in its order, with block letters in place of matplotlib's."""
    calls: list[Any] = []
    rotate = Image.Image.rotate

    def turned(sheet: Image.Image, angle: float, resample: int, **options: Any) -> Image.Image:
        calls.append(["rotate", round(angle, 9), int(resample), options])
        return rotate(sheet, 0)

    def blurred(radius: float) -> Any:
        calls.append(["blur", round(radius, 9)])
        return ImageFilter.BoxBlur(0)

    def printed(sheet: Image.Image, corner: Any, text: str, font: BlockLetters, ink: Any) -> None:
        calls.append(["text", sheet.size, sheet.getpixel((0, 0)), corner, text, font.name, font.size, ink])

    monkeypatch.setattr(ImageFont, "truetype", lambda file, size, **_: BlockLetters(file, size))
    monkeypatch.setattr(Image.Image, "rotate", turned)
    monkeypatch.setattr(ImageFilter, "GaussianBlur", blurred)
    monkeypatch.setattr(rendered_text, "_print_text", printed)
    return calls


@pytest.mark.parametrize(
    ("draw", "count", "digest"),
    [(rendered_text._draw_line, 150, "c51d87436c894235"), (rendered_text._draw_page, 40, "3473ede137669ae2")],
)
def test_what_is_drawn_is_the_same_everywhere(
    draw: Callable[..., tuple[Any, Any]], count: int, digest: str, drawn: list[Any]
) -> None:
    """Texts, sizes of letters and sheets, colours, places, blur, angles and boxes: all but the shape of letters."""
    labels = [draw(np.random.RandomState(seed), Path("fonts"))[1] for seed in range(count)]
    told = json.loads(json.dumps([drawn, [label if isinstance(label, str) else label.tolist() for label in labels]]))
    assert hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16] == digest


def test_letters_are_set_apart_the_same_way_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Raqm, which some builds of Pillow have; of the size that is asked for."""
    asked = []
    monkeypatch.setattr(ImageFont, "truetype", lambda *given, **options: asked.append((*given, options)))
    rendered_text._choose_font(np.random.RandomState(0), Path("fonts"))(17)
    ((file, size, options),) = asked
    assert (Path(file).stem in rendered_text._FONTS, size) == (True, 17)
    assert options == {"layout_engine": ImageFont.Layout.BASIC}


def test_a_sheet_is_worn_from_one_side_and_with_noise(drawn: list[Any]) -> None:
    """The shade goes from nothing at the left to at most 25 levels at the right; noise is of at most 25 levels; blur at
    most a tenth of the letters' height. What becomes darker than black is black."""
    sheet = Image.new("RGB", (200, 50), (100, 250, 3))
    worn = np.asarray(rendered_text._wear(sheet, 20, np.random.RandomState(3)))
    random = np.random.RandomState(3)
    blur = 20 * random.rand() ** 2 / 10
    shade = random.uniform(-25, 25) * np.arange(200) / 199
    noise = random.standard_normal((50, 200, 3)) * 25 * random.rand() ** 2
    expected = np.clip(np.array([100, 250, 3]) + shade[None, :, None] + noise, 0, 255)
    assert np.abs(worn - np.floor(expected)).max() <= 1
    assert (worn != np.floor(expected)).mean() < 0.001
    assert drawn == [["blur", pytest.approx(blur, abs=1e-8)]]


def test_an_example_is_its_number_in_its_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of train has seed 0, the first of test a million; so many are there of each."""
    assert rendered_text.COUNTS == {"lines": {"train": 500, "test": 500}, "pages": {"train": 100, "test": 300}}
    assert [opened(kind).count(split) for kind in rendered_text.KINDS for split in ("train", "test")] == [
        *(500, 500),
        *(100, 300),
    ]
    monkeypatch.setitem(rendered_text.COUNTS, "lines", {"train": 3, "test": 3})
    for split, first in (("train", 0), ("test", 1_000_000)):
        examples = opened().load(split)
        assert examples.ids == (f"{split}/0000", f"{split}/0001", f"{split}/0002")
        for number, (image, row) in enumerate(zip(examples.inputs[0], np.asarray(examples.labels), strict=True)):
            folder = rendered_text._find_fonts()
            alone, text = rendered_text._draw_line(np.random.RandomState(first + number), folder)
            assert read_text(row) == text
            assert np.array_equal(image.transpose(1, 2, 0), alone)


def test_more_than_there_are_cannot_be_drawn() -> None:
    """The data set and its split are named."""
    with pytest.raises(DataError, match=r"rendered-text:pages: split 'train': .*101"):
        opened("pages").sample("train", 101, 0)
    with pytest.raises(DataError, match=r"rendered-text:lines: no split 'val'"):
        opened().count("val")
    with pytest.raises(DataError, match=r"rendered-text:lines: no split 'val'"):
        opened().sample("val", 1, 0)
