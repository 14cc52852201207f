"""Rules of qbench/report/plots/svg.py: a figure inside a page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import matplotlib as mpl

from qbench.report.plots import canvas
from qbench.report.plots.rows import Flag, PictureRow, RowGroup, draw_interval, draw_mark, draw_rows
from qbench.report.plots.scale import logarithmic
from qbench.report.plots.svg import Words, inline

WORDS = Words(key="k", title="a <title>", description="what it shows")
ACROSS = logarithmic([0.5, 2.0], [0.4, 2.5], [1.0])


def draw(axes: Any, y: float, row: PictureRow) -> None:
    """A mark with an interval."""
    draw_interval(axes, 1.8, 2.2, y, row, ACROSS)
    draw_mark(axes, 2.0, y, row, ACROSS)


def drawn() -> str:
    """A picture with each kind of thing in it."""
    row = PictureRow(key="r", label="static · x86", text="$2$", mode="static", backend="torch", role="ship")
    figure = draw_rows([RowGroup(heading="net", rows=[row])], ACROSS, "an axis", draw, [Flag(at=1.0, text="one")])
    return inline(figure, WORDS)


def test_equal_data_gives_equal_bytes() -> None:
    """No random id and no date."""
    assert drawn() == drawn()


def test_text_stays_text_in_the_page_s_colours() -> None:
    """Labels can be selected, a name and a description are there; each colour is a variable of the page with the light
    colour where it has none, also black; no font of its own is left."""
    svg = drawn()
    root = ElementTree.fromstring(svg)
    assert {"static · x86", "$2$", "net", "one"} <= {node.text for node in root.iter("text")}
    assert [node.text for node in root.iter("title")] == ["a <title>"]
    assert [node.text for node in root.iter("desc")] == ["what it shows"]
    plain = re.sub(r"var\(--[\w-]+(, #[0-9a-f]{6})?\)", "", svg)
    assert re.findall(r"#[0-9a-f]{6}\b", plain) == []
    assert "var(--backend-torch)" in svg
    assert "var(--ink, #17202a)" in svg
    assert "DejaVu" not in svg
    assert "<style" not in svg
    assert "<!--" not in svg


def test_a_shortened_name_is_told_whole() -> None:
    """As a tooltip: the names that it may stand for, as text; a text that stands for none has no tooltip."""
    names = ["<b>" + "n" * 90 + "end", "<b>" + "n" * 200 + "other"]
    rows = [PictureRow(key=name, label=name, text="1…2", mode="static", backend="x86") for name in names]
    figure = draw_rows([RowGroup(heading="", rows=rows)], ACROSS, "x", lambda *parts: None)
    root = ElementTree.fromstring(inline(figure, replace(WORDS, names=frozenset(names))))
    assert [tip.text for text in root.iter("text") for tip in text.iter("title")] == names
    assert sum("…" in "".join(text.itertext()) for text in root.iter("text")) == 4


def test_of_many_names_that_a_text_may_stand_for_three_are_told() -> None:
    """In order; a text that holds such signs itself is split at the first."""
    names = [f"a{number}z" for number in (3, 1, 2, 0)]
    row = PictureRow(key="r", label="a\u2026z", text="x\u2026y\u2026z", mode="static", backend="x86")
    figure = draw_rows([RowGroup(heading="", rows=[row])], ACROSS, "x", lambda *parts: None)
    words = replace(WORDS, names=frozenset([*names, "x1y\u2026z"]))
    root = ElementTree.fromstring(inline(figure, words))
    assert [tip.text for text in root.iter("text") for tip in text.iter("title")] == ["a0z; a1z; a2z", "x1y\u2026z"]


def test_ids_begin_with_the_picture_s_key() -> None:
    """So that many fit in one page; what refers to an id follows it."""
    svg = drawn()
    ids = {node.attrib["id"] for node in ElementTree.fromstring(svg).iter() if "id" in node.attrib}
    assert all(name.startswith("k-") for name in ids)
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', svg)
    assert used
    assert set(used) <= ids


def test_global_settings_are_left_alone() -> None:
    """A user's own matplotlib settings are the same afterwards, and change no picture."""
    plain = drawn()
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        before = dict(mpl.rcParams)
        assert drawn() == plain
        assert dict(mpl.rcParams) == before


def test_no_two_roles_share_a_colour() -> None:
    """Else one would turn into the other inside a page."""
    backends = {canvas.color_of(name) for name in canvas.palette.BACKENDS}
    assert len(canvas.variables()) == len(canvas.ROLES) + len(backends) + 1
