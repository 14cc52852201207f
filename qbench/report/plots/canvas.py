"""What every picture is drawn on: sizes, colours, text that fits.

Sizes are in points; on a phone one point is about one pixel, so that letters are 12 pixels high there.
"""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from qbench.formatting import one_line
from qbench.report import palette

Role = Literal["ink", "muted", "grid", "card", "good", "bad", "unsure"]
# As on a light page; inside a report each becomes the page's own variable (``svg``). matplotlib leaves pure black out
# of an SVG, so that a page could not put its own colour there: it is drawn as the next colour to it.
ROLES: dict[Role, str] = {
    "ink": "#17202a",
    "muted": "#56616e",
    "grid": "#d5dae1",
    "card": "#ffffff",
    "good": "#17703c",
    "bad": "#b3261e",
    "unsure": "#8a5a00",
}
_UNUSUAL = "\u0250"  # from here on the measuring font may lack a letter, of which matplotlib warns
_BLACK, _NEARLY_BLACK = "#000000", "#000001"
WIDTH, WIDE, SIZE = 338.0, 820.0, 12.0
WASH = 0.1  # how strong a ground is coloured: marks keep their contrast on it
LINE = 15.0  # of a line of text
_NOTEBOOK_DPI = 96  # pixels an inch of a page
MARKERS: dict[str, str] = {
    "circle": "o",
    "triangle": "^",
    "square": "s",
    "diamond": "D",
    "pentagon": "p",
    "cross": "P",
    "star": "*",
}
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text as text: it can be read aloud, searched and selected
    "svg.hashsalt": "qbench",  # else element ids are random
    "text.parse_math": False,  # a model may be called $x^2$
    "font.size": SIZE,
    "hatch.linewidth": 0.8,
}


@contextmanager
def settings() -> Iterator[None]:
    """matplotlib's own settings with those of the pictures, whatever the user's are; they are left alone."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        # A name in a script that the measuring font lacks is still drawn by the reader's own fonts.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)  # type: ignore[arg-type]  # its stubs want one Literal per key
        yield


def new_figure(height: float, width: float = WIDTH) -> Any:
    """An empty figure of that height and width in points, without any global state; a notebook shows it."""
    return _class_of_figures()(figsize=(width / 72, height / 72), dpi=72)


@functools.cache
def _class_of_figures() -> type:
    """matplotlib's figure, which is loaded by the first picture, with what a notebook asks of an object."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        """A figure that a notebook shows without ``%matplotlib inline``."""

        def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
            """The picture with twice the pixels of the room that it takes, for screens of fine pixels."""
            buffer = io.BytesIO()
            with settings():
                self.savefig(buffer, format="png", dpi=2 * _NOTEBOOK_DPI)
            width, height = (round(side * _NOTEBOOK_DPI) for side in self.get_size_inches())
            return buffer.getvalue(), {"width": width, "height": height}

    return NotebookFigure


def add_axes(figure: Any, left: float, bottom: float, width: float, height: float) -> Any:
    """Axes at a place in points from the lower left corner."""
    across, up = (side * 72 for side in figure.get_size_inches())
    return figure.add_axes((left / across, bottom / up, width / across, height / up))


def style_axes(axes: Any) -> None:
    """Quiet lines to the left and below, none elsewhere; letters of the common size."""
    for side in ("right", "top"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(ROLES["grid"])
    axes.tick_params(color=ROLES["grid"], labelcolor=ROLES["muted"], length=3, labelsize=SIZE)
    axes.xaxis.label.set_color(ROLES["muted"])
    axes.xaxis.label.set_size(SIZE)


def color_of(backend: str) -> str:
    """The backend's colour, as it is drawn."""
    color = palette.color_of(backend).light
    return _NEARLY_BLACK if color == _BLACK else color


def variables() -> dict[str, str]:
    """What each drawn colour becomes inside a page: its CSS variable, with the colour where the page has none."""
    names = {color: f"var(--{role}, {color})" for role, color in ROLES.items()}
    for backend in palette.BACKENDS:
        names[color_of(backend)] = palette.variable_of(backend)
    return names | {palette.OTHER.light: palette.variable_of("")}


def mark_style(mode: str, backend: str) -> dict[str, Any]:
    """How a case is drawn: the mode's marker in the backend's colour; fp32 hollow, int8 filled with an edge."""
    color = color_of(backend)
    style: dict[str, Any] = {"marker": MARKERS[palette.marker_of(mode)], "linestyle": "none"}
    if mode == "fp32":
        return style | {"markerfacecolor": ROLES["card"], "markeredgecolor": color, "markeredgewidth": 2.0}
    return style | {"markerfacecolor": color, "markeredgecolor": ROLES["ink"], "markeredgewidth": 0.7}


@functools.lru_cache(maxsize=4096)
def text_width(text: str, size: float = SIZE, *, bold: bool = False) -> float:
    """How wide a text is in points, in matplotlib's own font, which is wider than most."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    with contextlib.nullcontext() if max(text, default="") < _UNUSUAL else settings():
        width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width)


def fit_text(text: str, room: float, size: float = SIZE, *, bold: bool = False) -> str:
    """The text on one line, its middle left out where it is wider than ``room`` points: both ends tell names apart."""
    text = one_line(text)
    if text_width(text, size, bold=bold) <= room:
        return text
    for length in range(min(len(text) - 1, 120), 1, -1):
        tail = length // 2
        shorter = f"{text[: length - tail]}…{text[len(text) - tail :]}"
        if text_width(shorter, size, bold=bold) <= room:
            return shorter
    return "…"


def clean_texts(figure: Any) -> None:
    """Takes line ends, control characters and those of writing direction from every text of a figure: names are
    anybody's, and no font has a letter for them."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        plain = one_line(text.get_text())
        if plain != text.get_text():
            text.set_text(plain)
