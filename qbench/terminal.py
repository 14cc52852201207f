"""A table of strings for a terminal that is too narrow for it: a block of lines for each row, so nothing is lost."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

_NARROWEST = 20  # characters; below that no line could hold a figure with its limits
_BETWEEN = " · "


def blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """The table as lines of at most ``width`` characters, without a trailing newline.

    A row begins with its first cell; the other cells follow with their column's title, indented. Empty ones are
    left out.
    """
    return "\n".join(line for row in rows for line in _block(columns, row, max(width, _NARROWEST)))


def _block(columns: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    yield from textwrap.wrap(row[0], width, break_on_hyphens=False)
    told = [f"{title} {cell}" for title, cell in zip(columns[1:], row[1:], strict=True) if cell]
    yield from textwrap.wrap(
        _BETWEEN.join(told), width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
