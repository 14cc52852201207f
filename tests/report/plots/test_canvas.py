"""Rules of qbench/report/plots/canvas.py: sizes, text that fits, and what a notebook and a file get of a figure."""

from __future__ import annotations

import re
import struct

import pytest

from qbench.report.plots import canvas
from qbench.report.plots.canvas import clean_texts, fit_text, new_figure, text_width
from qbench.report.plots.svg import Words, inline


def test_a_text_that_fits_is_left_as_it_is() -> None:
    """Up to the last point; what stands on several lines stands on one."""
    assert fit_text("WWWWWW", text_width("WWWWWW")) == "WWWWWW"
    assert fit_text("W\nW", 100.0) == "W W"
    bold = text_width("WWWWWW", bold=True)
    assert bold > text_width("WWWWWW")
    assert fit_text("WWWWWW", bold, bold=True) == "WWWWWW"
    assert "\u2026" in fit_text("WWWWWW", text_width("WWWWWW"), bold=True)
    assert "\u2026" in fit_text("WWWWWW", text_width("WWWWWW"), 24.0)


@pytest.mark.parametrize("kept", [5, 4, 3, 2])
def test_of_a_wider_text_as_much_is_left_as_fits(kept: int) -> None:
    """A letter less wherever it does; of an odd number the beginning has one more."""
    name = "AB\u0152\u0152EF"
    shorter = f"{name[: kept - kept // 2]}\u2026{name[6 - kept // 2 :]}"
    room = text_width(shorter)
    assert fit_text(name, room) == shorter
    less = fit_text(name, room - 0.01)
    assert len(less) == (kept if kept > 2 else 1)


def test_of_a_very_long_text_no_more_than_120_letters_are_tried() -> None:
    """Whatever the room: a name may have any length."""
    text = fit_text("i" * 5000, text_width("i" * 1000))
    assert text == f"{'i' * 60}\u2026{'i' * 60}"


def test_a_width_is_that_of_the_letters_themselves() -> None:
    """No formula is read out of a name, no letter is missing without a warning being kept back, nothing has none."""
    assert text_width("") == 0
    assert text_width("$x^2$") > text_width("$x^")
    assert text_width("\u65e5\u672c") > 0
    assert text_width("ii", 24.0) == pytest.approx(2 * text_width("ii"), rel=0.05)


def test_a_figure_has_a_pixel_a_point_and_a_notebook_twice_those_of_its_room() -> None:
    """Whoever saves it gets the size that it is drawn for."""
    figure = new_figure(120.0)
    assert (figure.dpi, tuple(figure.get_size_inches() * 72)) == (72, pytest.approx((338.0, 120.0)))
    png, room = figure._repr_png_()
    width, height = struct.unpack(">II", png[16:24])
    assert room == {"width": round(338 / 72 * 96), "height": 160}
    assert (width, height) == (int(338 / 72 * 192), 320)


def test_names_are_cleaned_on_a_figure() -> None:
    """As what cannot be drawn."""
    figure = new_figure(100.0)
    text = figure.text(0, 0, "a\nb\u202ec\x1b")
    clean_texts(figure)
    assert text.get_text() == canvas.one_line("a\nb\u202ec\x1b") != "a\nb\u202ec\x1b"


def test_hatches_are_thin_and_nothing_lies_behind_a_picture() -> None:
    """Hatched is what is in float; the page's own ground shows through."""
    with canvas.settings():
        figure = new_figure(100.0)
        axes = canvas.add_axes(figure, 10, 10, 300, 80)
        axes.barh([1], [1], facecolor="none", edgecolor="#56616e", hatch="////")
    svg = inline(figure, Words(key="k", title="", description=""))
    (pattern,) = re.findall(r"<pattern.*?</pattern>", svg, re.DOTALL)
    assert "stroke-width: 0.8" in pattern
    ground = svg[svg.index("patch_1") : svg.index("patch_2")]
    assert "fill: none" in ground or "opacity: 0" in ground
