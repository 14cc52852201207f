"""Tables in plain text: aligned columns, or a block of lines for each row where the terminal is too narrow.

Not rich's tables: they cut or fold a cell where the terminal is narrow, here a figure stays beside its limits and an id
can be copied whole; and what goes to a pipe is what the terminal shows.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from qbench.foreign_text import join_lines

_NARROWEST = 20  # characters; below that no line could hold a figure with its limits
_BETWEEN = " · "


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """Plain strings: column titles, and rows of the same length; ``words`` are the positions of columns that are
    aligned to the left."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[int, ...] = (0,)


def format_table(table: TextTable, width: int | None) -> str:
    """The table aligned where it fits into ``width`` columns (None: any), else as blocks; no trailing newline."""
    aligned = align(table)
    if width is None or max(map(len, aligned.splitlines())) <= width:
        return aligned
    return split_into_blocks(table, width)


def align(table: TextTable) -> str:
    """The titles and the rows as lines of text: columns of words to the left, the others to the right."""
    return "\n".join(align_rows([table.columns, *table.rows], words=table.words))


def align_rows(rows: Sequence[Sequence[str]], *, words: Collection[int] | None = None) -> list[str]:
    """The rows as lines, every column as wide as its widest cell; ``words``: which are aligned to the left (None:
    all)."""
    rows = [[join_lines(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if words is None or index in words else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return [line.rstrip() for line in lines]


def split_into_blocks(table: TextTable, width: int) -> str:
    """The table as lines of at most ``width`` characters, without a trailing newline.

    A row begins with its first cell; the other cells follow with their column's title, indented. Empty ones are
    left out.
    """
    return "\n".join(line for row in table.rows for line in _wrap_row(table.columns, row, max(width, _NARROWEST)))


def _wrap_row(columns: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    yield from textwrap.wrap(row[0], width, break_on_hyphens=False)
    cells = [f"{title} {cell}" for title, cell in zip(columns[1:], row[1:], strict=True) if cell]
    yield from textwrap.wrap(
        _BETWEEN.join(cells), width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
