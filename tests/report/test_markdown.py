"""Rules of qbench/report/markdown.py: documents that stay short, and say what they left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rendered_markdown import elements_of, foreign, words_of

from qbench.progress.table import TextTable
from qbench.report.markdown import Part, fit, list_part, table_part


def test_what_fits_is_whole() -> None:
    """Nothing is cut while all of it is shorter than the limit."""
    parts = [Part(lines=("one",)), list_part(["two", "three"], folded="more")]
    assert fit(parts, 200) == "one\n\n<details><summary>more</summary>\n\n- two\n- three\n\n</details>\n"


@given(
    st.lists(st.integers(min_value=0, max_value=60), min_size=1, max_size=12),
    st.integers(min_value=1, max_value=40),
    st.integers(min_value=300, max_value=3000),
)
def test_a_document_stays_under_its_limit(counts: list[int], width: int, limit: int) -> None:
    """However many parts there are, and however long they are; each that is cut says so."""
    parts = [list_part(["x" * width] * count, before="head\n", folded="fold") for count in counts if count]
    text = fit(parts, limit)
    assert len(text) < limit
    assert text.count("<details>") == text.count("</details>")
    shown = text.count("- " + "x" * width)
    if shown < sum(counts):
        assert "more in report.html" in text or "more sections are in report.html" in text


def test_a_short_part_leaves_its_room_to_the_others() -> None:
    """The room is shared evenly, and what one does not need is not lost."""
    long = list_part([f"{number:05}" for number in range(1000)])
    text = fit([Part(lines=("short",)), long], 2000)
    assert 1500 < len(text) < 2000
    assert text.count("\n- ") > 150
    assert "… and 7" in text


def test_a_table_is_one_row_a_line_with_every_cell_inert() -> None:
    """Bars, breaks and marks in a cell make no cell, row or element; one row may stand out."""
    content = TextTable(columns=("a|b", "n"), rows=(("x|y\nz", "1"), ("<b>", "")), words=(0,))
    text = table_part(content, bold=0, folded="All", after="after").draw()
    assert elements_of(text) == {"details", "summary", "table", "thead", "tbody", "tr", "th", "td", "strong", "p"}
    assert foreign(text) == []
    assert words_of(text) == "All a|b n x|y z 1 <b> after"


@pytest.mark.parametrize(("room", "kept"), [(200, 5), (121, 5), (120, 4), (99, 1), (93, 1), (92, 0)])
def test_a_part_keeps_as_many_lines_as_fit(room: int, kept: int) -> None:
    """Each line takes its letters and a break, beside the frame, what is said of the rest, and 60 letters."""
    part = list_part(["abcd"] * 5, before="heading")
    left = f"\n\n… and {5 - kept} more in report.html" if kept < 5 else ""
    assert part.draw(room) == ("heading" + "\n- abcd" * kept + left if kept else "")


@pytest.mark.parametrize(("limit", "whole"), [(8, True), (7, False)])
def test_a_document_is_shorter_than_its_limit(limit: int, whole: bool) -> None:
    """Not as long as it: sections that have no room are counted."""
    told = fit([Part(lines=("one",)), Part(lines=("a",))], limit)
    assert told == ("one\n\na\n" if whole else "2 more sections are in report.html.\n")


def test_words_of_a_table_stand_to_the_left_and_one_row_stands_out() -> None:
    """Numbers to the right; an empty cell is not set in bold, and nothing is without its number."""
    content = TextTable(columns=("a", "n"), rows=(("x", "1"), ("y", "")), words=(0,))
    assert table_part(content, bold=1).draw() == "| a | n |\n|---|---:|\n| x | 1 |\n| **y** |  |"
    assert table_part(content).draw() == "| a | n |\n|---|---:|\n| x | 1 |\n| y |  |"
    assert Part(lines=(), after="after").draw() == "after"
    assert Part(lines=()).draw() == ""


@pytest.mark.parametrize("room", [0, 50, 100])
def test_a_part_without_room_is_left_out_whole(room: int) -> None:
    """A heading without a line under it would promise something."""
    assert list_part(["x" * 200], before="heading").draw(room) == ""


def test_a_cell_has_a_hundred_letters_at_most() -> None:
    """Both ends of a longer name are kept."""
    content = TextTable(columns=("a",), rows=(("x" * 100,), ("x" * 101,)))
    assert table_part(content).lines == (f"| {'x' * 100} |", f"| {'x' * 49}\u2026{'x' * 50} |")
