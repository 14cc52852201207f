"""Rules of qbench/report/plots/rows.py: rows in which no line goes through a word."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from typing import Any

import pytest

from qbench.report.plots import canvas
from qbench.report.plots.rows import Flag, PictureRow, RowGroup, draw_interval, draw_mark, draw_rows
from qbench.report.plots.scale import linear
from qbench.report.plots.svg import Words, inline

WORDS = Words(key="k", title="", description="")
UPRIGHT = re.compile(r"M ([\d.]+) ([\d.]+) \nL ([\d.]+) ([\d.]+)")
ACROSS = linear([0.1, 0.9], [-3.0, 1.0], [0.0, -1.0])


def draw(axes: Any, y: float, row: PictureRow) -> None:
    """A mark with an interval that leaves the scale."""
    draw_interval(axes, -300, 1, y, row, ACROSS)
    draw_mark(axes, 0.5, y, row, ACROSS)


def drawn(count: int, label: str = "@recipe", flags: tuple[Flag, ...] = ()) -> str:
    """Two groups of so many rows."""
    rows = [
        PictureRow(key=f"{i}", label=f"{label}-{i}", text="=number", mode="static", backend="x86", role="ship")
        for i in range(count)
    ]
    groups = [RowGroup(heading="net · 1 thread", rows=rows), RowGroup(heading="other", rows=rows)]
    return inline(draw_rows(groups, ACROSS, "axis", draw, flags), WORDS)


@pytest.mark.parametrize("count", [1, 2, 15])
def test_no_line_goes_through_words(count: int) -> None:
    """Limit, reference and grid are drawn below each row's words, however many rows there are."""
    flags = (Flag(at=0.0, text="fp32"), Flag(at=-1.0, text="limit", role="bad", dashed=True))
    svg = drawn(count, flags=flags)
    texts = [node for node in ElementTree.fromstring(svg).iter("text") if node.text]
    baselines = [float(node.attrib["y"]) for node in texts if node.text.startswith(("@", "net", "other", "=", "fp32"))]
    assert len(baselines) == 2 * (2 * count + 1) + 1
    lines = [tuple(map(float, match.groups())) for match in UPRIGHT.finditer(svg)]
    upright = [sorted((y, end)) for x, y, other, end in lines if x == other]
    assert len(upright) >= 2 * count
    crossed = [y for y in baselines for top, bottom in upright if top < y + 2 and bottom > y - 8]
    assert crossed == []


def test_a_long_name_leaves_room_for_its_number() -> None:
    """Its middle is left out: both ends tell names apart."""
    svg = drawn(1, label="@" + "n" * 200 + "end")
    label = next(node.text for node in ElementTree.fromstring(svg).iter("text") if node.text.startswith("@"))
    assert label.endswith("end-0")
    assert "…" in label
    assert canvas.text_width(label) + canvas.text_width("=number") < canvas.WIDTH


def test_words_of_flags_do_not_meet() -> None:
    """Places that lie near each other have their words on several lines."""
    flags = tuple(Flag(at=0.01 * i, text=f"flag number {i}") for i in range(4))
    nodes = [node for node in ElementTree.fromstring(drawn(1, flags=flags)).iter("text") if "flag" in node.text]
    starts = [(float(node.attrib["x"]), node.attrib["y"], canvas.text_width(node.text, canvas.SIZE)) for node in nodes]
    boxes = [(left, left + width, y) for left, y, width in starts]
    assert len(boxes) == 4
    for box, other in combinations(boxes, 2):
        assert box[2] != other[2] or box[1] < other[0] or other[1] < box[0]
    assert all(left >= 0 and right <= canvas.WIDTH for left, right, _ in boxes)


def test_letters_are_large_enough_for_a_phone() -> None:
    """The picture is no wider than a phone, and letters are 11 or 12 of its units high."""
    svg = drawn(2)
    assert float(re.search(r'viewBox="0 0 ([\d.]+)', svg).group(1)) <= 340
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: (?:bold )?([\d.]+)px", svg)]
    assert sizes
    assert min(sizes) >= 11
