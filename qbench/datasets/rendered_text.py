"""``rendered-text``: printed lines with their texts, or pages with a box around each line; nothing is fetched.

``rendered-text`` alone (or ``{rendered-text: lines}``) gives lines of 48 x 320 pixels as ``text-lines`` does,
``{rendered-text: pages}`` pages of 480 x 480 pixels with boxes of one class as ``coco`` does. What stands there are
words, amounts, dates, addresses and codes as on bills and forms; the words stand in this file, so that every Python
gives the same texts. The letters are those that matplotlib carries (DejaVu, STIX), in several sizes; colours are faint,
lines askew, blurred and noisy now and then, so that recognizers make mistakes. An example is drawn from its own seed;
letters drawn by another version of Pillow may differ by some pixels.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples, positions
from qbench.datasets.boxes import join_boxes
from qbench.datasets.image import Shape, fit_line
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.splits import SPLITS
from qbench.datasets.text_labels import join_texts
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

NAME = "rendered-text"
KINDS = ("lines", "pages")
LINE = Shape(size=(48, 320), resize=None, channels=3, layout="nchw")
PAGE = 480
COUNTS = {"lines": {"train": 500, "test": 500}, "pages": {"train": 100, "test": 300}}
GREY = 128  # beside a line: what the network is given there is 0, as nearly as bytes can say it
_FIRST_SEEDS = {"train": 0, "test": 1_000_000}
_FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSansMono"),
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic"),
)
_SAID = (
    "account address advance agent amount and annual approved at balance bank before between bill branch building by "
    "cash change charge city claim client code company contract copy cost country credit customer daily date day "
    "deposit discount district door due duty each east edition email entry equal exempt express factory fee field "
    "file final first floor for freight from garden gift goods gross half harbour height hotel hour house in income "
    "index invoice island item journey key label large letter level licence limit list local low lunch mail market "
    "medical member menu metal method middle mill minute model month name net new next night north note number of off "
    "office oil on open order other over owner page paid paper park part payment per period phone place plan plate "
    "point post price private product profit public quantity quality query quick rate receipt record refund region "
    "rent report return road room route safety sale season seat second section service sheet shop signature size small "
    "south special square stamp station stock store street subject sum supply table tax team term ticket time to total "
    "town trade train transfer type unit until up urgent value vehicle version village visit volume water week weight "
    "west white width window with work year yellow young your zone"
)
_WORDS = _SAID.split()
_LEAST_CONTRAST, _MOST_CONTRAST = 20, 200  # levels between letters and paper
_MOST_BLUR, _MOST_NOISE = 0.1, 25  # a radius, of the height of letters; levels
_SIZES = (12, 40)  # pixels of a letter's height, before a line is scaled
_LONGEST = 7  # times the height of its letters
_MOST_LETTERS = 24  # of a line: so wide are the labels of any of them
_TRIES = (2, 9)  # parts that are tried for a text
_LINES_OF_PAGE, _LETTERS_OF_PAGE = (3, 9), (12, 27)


class RenderedText(Dataset):
    """Raw inputs are uint8 (n, 3, height, width); labels are texts, or boxes, as ``kind`` says."""

    splits = SPLITS
    preprocessing = Preprocessing(scale=1 / 255, mean=(0.5,), std=(0.5,))

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = f"{NAME}:{kind}"
        self.classes = 1 if kind == "pages" else None
        self._folder = _find_fonts()

    def load(self, split: str) -> Examples:
        """All examples of a split; ids are its name and their number."""
        return self.sample(split, None, 0)

    def sample(self, split: str, samples: int | None, seed: int) -> Examples:
        """``samples`` examples drawn by ``seed``; the others are not rendered."""
        require_split(self, split)
        count = self.count(split)
        try:
            chosen = range(count) if samples is None else positions(count, samples, seed)
        except DataError as error:
            raise DataError(f"{self.name}: split '{split}': {error}") from error
        seeds = [np.random.RandomState(_FIRST_SEEDS[split] + int(number)) for number in chosen]
        if self.kind == "lines":
            lines = [_draw_line(random, self._folder) for random in seeds]
            images, labels = [image for image, _ in lines], join_texts([text for _, text in lines], _MOST_LETTERS)
        else:
            pages = [_draw_page(random, self._folder) for random in seeds]
            images, labels = [image for image, _ in pages], join_boxes([boxes for _, boxes in pages])
        inputs = np.ascontiguousarray(np.stack(images).transpose(0, 3, 1, 2))
        ids = tuple(f"{split}/{int(number):04d}" for number in chosen)
        examples = Examples(inputs=(inputs,), labels=labels, ids=ids)
        check_dataset(self, split, examples)
        return examples

    def count(self, split: str) -> int:
        """The examples of a split."""
        require_split(self, split)
        return COUNTS[self.kind][split]


def _find_fonts() -> Path:
    """The folder of the letters; matplotlib itself, which takes a second to import, is not imported."""
    spec = importlib.util.find_spec("matplotlib")
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        fonts = Path(folder) / "mpl-data" / "fonts" / "ttf"
        if all((fonts / f"{name}.ttf").is_file() for name in _FONTS):
            return fonts
    raise DataError(f"{NAME}: matplotlib's letters ({_FONTS[0]}.ttf and others) are not there; reinstall matplotlib")


def _draw_line(random: np.random.RandomState, fonts: Path) -> tuple[Array, str]:
    """A line (48, 320, 3), and its text."""
    from PIL import Image

    paper, ink = _choose_colours(random)
    font, size = _choose_font(random, fonts), random.randint(*_SIZES)
    text = _write_text(random, partial(_fits, font(size), _LONGEST * size))
    left, top, right, bottom = font(size).getbbox(text)
    before, above, behind, below = random.randint(1, 2 + size // 4, 4)
    sheet = Image.new("RGB", (int(right - left + before + behind), int(bottom - top + above + below)), paper)
    _print_text(sheet, (int(before - left), int(above - top)), text, font(size), ink)
    sheet = sheet.rotate(random.uniform(-1.2, 1.2), Image.Resampling.BICUBIC, fillcolor=paper)
    return fit_line(_wear(sheet, size, random), LINE, stretch=False, padding=(GREY,) * 3), text


def _draw_page(random: np.random.RandomState, fonts: Path) -> tuple[Array, Array]:
    """A page (480, 480, 3), and the boxes of its lines (m, 6)."""
    from PIL import Image

    paper, ink = _choose_colours(random)
    page, boxes = Image.new("RGB", (PAGE, PAGE), paper), list[list[float]]()
    font, down = _choose_font(random, fonts), int(random.randint(10, 60))
    for _ in range(random.randint(*_LINES_OF_PAGE)):
        size, start = int(random.randint(*_LETTERS_OF_PAGE)), int(random.randint(10, PAGE // 2))
        letters = font(size)
        room = random.uniform(0.4, 1.0) * (PAGE - 10 - start)
        text = _write_text(random, partial(_fits, letters, room))
        height, length = sum(letters.getmetrics()), letters.getlength(text)
        if down + height > PAGE - 10 or start + length > PAGE - 10:
            break
        _print_text(page, (start, down), text, letters, ink)
        margin = size // 8
        boxes.append([start - margin, down, start + length + margin, down + height, 0, 0])
        down += int(height + random.randint(4, 36))
    worn = np.asarray(_wear(page, _LETTERS_OF_PAGE[0], random))
    return worn, np.array(boxes, dtype=np.float32).reshape(-1, 6)


def _fits(letters: Any, room: float, text: str) -> bool:
    return bool(letters.getlength(text) <= room)


def _print_text(sheet: Image, corner: tuple[int, int], text: str, font: Any, ink: tuple[int, ...]) -> None:
    from PIL import ImageDraw

    ImageDraw.Draw(sheet).text(corner, text, font=font, fill=ink)


def _choose_font(random: np.random.RandomState, fonts: Path) -> Callable[[int], Any]:
    """Of a size in pixels the letters."""
    from PIL import ImageFont

    file = str(fonts / f"{_FONTS[random.randint(len(_FONTS))]}.ttf")
    # Without Raqm, which some builds of Pillow have and others do not: they would set letters apart differently.
    return lambda size: ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC)


def _choose_colours(random: np.random.RandomState) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the paper and of the letters: dark on light, the other way in one of five, faint in some."""
    contrast = int(random.randint(_LEAST_CONTRAST, _MOST_CONTRAST))
    tint = random.randint(-15, 16, (2, 3))
    light = int(random.randint(contrast, 256))
    paper, ink = (np.clip(level + part, 0, 255) for level, part in zip((light, light - contrast), tint, strict=True))
    colours = [tuple(int(level) for level in colour) for colour in (paper, ink)]
    return (colours[1], colours[0]) if random.rand() < 0.2 else (colours[0], colours[1])


def _wear(sheet: Image, size: int, random: np.random.RandomState) -> Image:
    """The sheet as a poor camera sees it: out of focus, shaded from one side, with noise."""
    from PIL import Image, ImageFilter

    sheet = sheet.filter(ImageFilter.GaussianBlur(_MOST_BLUR * size * float(random.rand()) ** 2))
    pixels = np.asarray(sheet, dtype=np.float64)
    shade = np.linspace(0, random.uniform(-25, 25), sheet.width)[None, :, None]
    noise = random.standard_normal(pixels.shape) * (_MOST_NOISE * random.rand() ** 2)
    return Image.fromarray(np.clip(pixels + shade + noise, 0, 255).astype(np.uint8))


def _write_text(random: np.random.RandomState, fits: Callable[[str], bool]) -> str:
    """A text of some of the parts that fit; one word where none does."""
    text = ""
    for _ in range(random.randint(*_TRIES)):
        part = _write_part(random)
        longer = f"{text} {part}" if text else part
        text = longer if fits(longer) else text
    return text or _WORDS[random.randint(len(_WORDS))]


def _write_part(random: np.random.RandomState) -> str:
    """A word, mostly; else an amount, a date, a time, a code or an address."""
    word, other = (_WORDS[int(place)] for place in random.randint(len(_WORDS), size=2))
    numbers = random.randint(0, 10**6, 3)
    kind = random.rand()
    if kind < 0.65:
        case = random.rand()
        return word.capitalize() if case < 0.25 else word.upper() if case < 0.4 else word
    forms = (
        f"{'$€£'[numbers[2] % 3]}{numbers[0] % 1000}.{numbers[1] % 100:02d}",
        f"{numbers[0] % 28 + 1:02d}/{numbers[1] % 12 + 1:02d}/20{numbers[2] % 40:02d}",
        f"{numbers[0] % 24:02d}:{numbers[1] % 60:02d}",
        f"{word[:2].upper()}-{numbers[0] % 10000:04d}",
        f"{word}@{other}.com",
        f"({word})",
        f"{word.capitalize()},",
        f"{numbers[0] % 100}%",
        f"No.{numbers[0] % 1000}",
        f"#{numbers[0]}",
    )
    return forms[random.randint(len(forms))]


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """What stands behind the name, lines where nothing does; renders nothing."""
    opt.read(opt.RenderedTextOptions, options)
    kind = KINDS[0] if value is None else value
    if kind not in KINDS:
        raise DataError(f"{NAME}: expected {' or '.join(KINDS)}, got {value!r}; write {{{NAME}: {KINDS[0]}}}")
    return RenderedText(kind)
