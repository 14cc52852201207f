"""Tables in plain text: aligned, or split into blocks that are folded, never cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.progress.table import TextTable, align, align_rows, format_table, split_into_blocks

TABLE = TextTable(
    columns=("case", "p50, ms", "speed-up", "notes"),
    rows=(
        ("digits-cnn/static/onednn/t1/b1", "0.131 [0.129, 0.134]", "2.51 [2.46, 2.57]", ""),
        ("digits-cnn/fp32/torch/t1/b1", "0.33", "\N{EM DASH}", "the control was off"),
    ),
)


def test_a_row_is_its_name_and_its_titled_cells() -> None:
    """The name stands alone, what belongs to it is indented, and empty cells are left out."""
    assert split_into_blocks(TABLE, 50) == (
        "digits-cnn/static/onednn/t1/b1\n"
        "  p50, ms 0.131 [0.129, 0.134] · speed-up 2.51\n"
        "  [2.46, 2.57]\n"
        "digits-cnn/fp32/torch/t1/b1\n"
        "  p50, ms 0.33 · speed-up \N{EM DASH} · notes the control\n"
        "  was off"
    )


WORDS = st.text(st.characters(categories=("Lu", "Ll", "Nd", "Ps", "Pe", "Sm")), min_size=1, max_size=50)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4), st.integers(1, 120))
def test_no_line_is_too_wide_and_no_character_is_lost(rows: list[tuple[str, str, str]], width: int) -> None:
    """Whatever the cells and the width: lines fit (20 characters are the least), and every cell is there."""
    text = split_into_blocks(TextTable(columns=("case", "a", "b"), rows=tuple(rows)), width)
    assert max(map(len, text.splitlines())) <= max(width, 20)
    squeezed = re.sub(r"\s", "", text)
    assert squeezed == "".join(f"{name}a{first}·b{second}" for name, first, second in rows)


@pytest.mark.parametrize("width", [None, 200])
def test_a_table_is_aligned_where_it_fits_or_goes_to_no_terminal(width: int | None) -> None:
    """Names stand to the left and numbers to the right, and no line ends in spaces."""
    assert format_table(TABLE, width) == align(TABLE)
    titles, first, _ = align(TABLE).splitlines()
    assert titles.startswith("case ")
    assert first.index("0.131") == titles.index("p50, ms") + len("p50, ms") - len("0.131 [0.129, 0.134]")
    assert all(line == line.rstrip() for line in align(TABLE).splitlines())


def test_columns_of_words_are_aligned_to_the_left() -> None:
    """Those that are named, the first one where none is, and all of rows that have no title."""
    rows = (("name", "words", "n"), ("a", "b", "12"))
    assert align_rows(rows) == ["name  words  n", "a     b      12"]
    table = TextTable(columns=rows[0], rows=rows[1:])
    assert align(table).splitlines() == ["name  words   n", "a         b  12"]
    named = TextTable(columns=rows[0], rows=rows[1:], words=(1,))
    assert align(named).splitlines() == ["name  words   n", "   a  b      12"]


def test_a_table_that_is_wider_than_the_terminal_is_split_into_blocks() -> None:
    """One column less than the aligned lines take is too few; as many as they take are enough."""
    width = max(map(len, align(TABLE).splitlines()))
    assert format_table(TABLE, width) == align(TABLE)
    assert format_table(TABLE, width - 1) == split_into_blocks(TABLE, width - 1)


def test_a_name_is_not_parted_at_its_hyphens() -> None:
    """``digits-cnn`` is one word, as a row's name and in a cell: what is copied from the terminal is whole."""
    table = TextTable(columns=("case", "notes"), rows=(("the digits-cnn", "see digits-cnn"),))
    assert split_into_blocks(table, 20) == "the digits-cnn\n  notes see\n  digits-cnn"
    long = TextTable(columns=("case",), rows=(("the first digits-cnn",), ("of the run digits-cnn",)))
    assert split_into_blocks(long, 20) == "the first digits-cnn\nof the run\ndigits-cnn"


def test_rows_of_another_length_than_the_titles_are_a_bug() -> None:
    """A cell would stand below another's title, or be left out."""
    for rows in ((("a", "1"), ("b",)), (("a", "1", "2"),)):
        table = TextTable(columns=("case", "p50"), rows=rows)
        with pytest.raises(ValueError, match="zip"):
            align(table)
        with pytest.raises(ValueError, match="zip"):
            split_into_blocks(table, 20)
