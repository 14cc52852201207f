"""Rules of qbench/report/plots.py."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from qbench.report.plots import Group, Mark, Words, bars, intervals, ridges

WORDS = Words(key="k", title="a title", description="what it shows", axis="an axis")
GROUPS = [Group(heading="net", marks=[Mark(label="static · x86", text="2.5", value=2.5, low=2.4, high=2.6)])]


def drawn() -> list[str]:
    """One drawing of each kind."""
    return [
        intervals(GROUPS, WORDS, reference=1.0, log=True),
        intervals(GROUPS, WORDS, reference=0.0, log=False, margin=-1.0),
        bars(GROUPS, WORDS),
        ridges(GROUPS, WORDS, lambda mark: np.linspace(0.95, 1.4, 200), 1.3),
    ]


def test_equal_data_gives_equal_bytes() -> None:
    """No random id and no date."""
    assert drawn() == drawn()


def test_a_drawing_is_well_formed_with_text_as_text_and_the_page_s_colours() -> None:
    """Labels can be selected, a name and a description are there, no fixed colour or font is left."""
    for svg in drawn():
        root = ElementTree.fromstring(svg)
        texts = [node.text for node in root.iter("text")]
        assert "static · x86" in texts
        assert [node.text for node in root.iter("title")] == ["a title"]
        assert [node.text for node in root.iter("desc")] == ["what it shows"]
        assert "#" not in svg.replace('href="#k-', "").replace("url(#k-", "")
        assert "DejaVu" not in svg
        assert "<style" not in svg


UPRIGHT = re.compile(r"M ([\d.]+) ([\d.]+) \nL ([\d.]+) ([\d.]+)")
WORDS_REACH = 7.0, 2.0  # points above and below the baseline


@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_no_line_goes_through_words(count: int) -> None:
    """Margin, reference and grid are drawn below each row's label and number, however many rows there are."""
    marks = [Mark(label=f"@recipe-{i}", text="=number", value=0.1 + i / count, low=-3, high=1) for i in range(count)]
    groups = [Group(heading="net · 1 thread", marks=marks), Group(heading="other", marks=marks)]
    for svg in (
        intervals(groups, WORDS, reference=0.0, log=False, margin=-1.0),
        bars(groups, WORDS),
        ridges(groups, WORDS, lambda mark: np.linspace(0.95, 1.4, 200), 1.3),
    ):
        texts = [node for node in ElementTree.fromstring(svg).iter("text") if node.text]
        baselines = [float(node.attrib["y"]) for node in texts if node.text.startswith(("@", "net", "other", "="))]
        assert len(baselines) == 2 * (2 * count + 1)
        lines = [tuple(map(float, found.groups())) for found in UPRIGHT.finditer(svg)]
        upright = [sorted((y, end)) for x, y, other, end in lines if x == other]
        assert len(upright) >= 2 * count
        above, below = WORDS_REACH
        crossed = [y for y in baselines for top, bottom in upright if top < y + below and bottom > y - above]
        assert crossed == []


def test_numbers_of_the_axis_are_not_cut_at_its_ends() -> None:
    """A tick so near the edge that its number would reach beyond the drawing has none: -2.00 would read 2.00."""
    marks = [Mark(label="a", text="", value=-1.3, low=-1.9, high=-0.7)]
    svg = intervals([Group(heading="", marks=marks)], WORDS, reference=0.0, log=False, margin=-1.0)
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg).group(1))
    ticks = [
        node for node in ElementTree.fromstring(svg).iter("text") if re.fullmatch("\N{MINUS SIGN}?[0-9.]+", node.text)
    ]
    assert len(ticks) >= 4
    for node in ticks:
        half = 5.5 * len(node.text) / 2  # points: a digit of nine is 5.5 wide
        assert half <= float(node.attrib["x"]) <= width - half


def test_ids_of_two_drawings_differ() -> None:
    """Every id begins with the drawing's key, so that many fit in one page."""
    root = ElementTree.fromstring(bars(GROUPS, WORDS))
    assert all(node.attrib["id"].startswith("k-") for node in root.iter() if "id" in node.attrib)


def test_global_settings_are_left_alone() -> None:
    """A user's own matplotlib settings are the same afterwards, and pyplot is not loaded by drawing."""
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    drawn()
    assert dict(mpl.rcParams) == before


def test_degenerate_data_can_be_drawn() -> None:
    """No marks, one value at zero, equal limits, extreme ratios."""
    assert intervals([], WORDS, reference=1.0, log=True)
    assert bars([Group(heading="", marks=[Mark(label="", text="", value=0.0)])], WORDS)
    wide = [Mark(label="a", text="", value=1e-4), Mark(label="b", text="", value=1e4, low=1e4, high=1e4)]
    assert intervals([Group(heading="x", marks=wide)], WORDS, reference=1.0, log=True)
