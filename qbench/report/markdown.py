"""Parts of a Markdown document that must stay under a number of characters: each gives up lines, none gives up all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.progress.table import TextTable

LETTERS = 100  # of a cell; both ends of a longer name are kept
_NOTE = 60  # what `_describe_rest` may take


@dataclass(frozen=True, kw_only=True)
class Part:
    """``before`` and ``after`` stand around ``lines``, of which the last ones are left out where all are too long;
    ``rest`` is what these are called and where they are. ``folded`` is the title under which a reader finds it."""

    lines: tuple[str, ...]
    before: str = ""
    after: str = ""
    rest: str = "more in report.html"
    folded: str | None = None

    def draw(self, room: int | None = None) -> str:
        """The text within that many characters (None: all of it); empty where not even its frame fits, or nothing is
        in it."""
        if not (self.lines or self.before or self.after):
            return ""
        fitting = self.lines if room is None else self._keep(room)
        if self.lines and not fitting:
            return ""
        more = len(self.lines) - len(fitting)
        listed = [self.before, *fitting] if self.before else list(fitting)
        inner = ["\n".join(listed), *([f"… and {more:,} {self.rest}"] if more else [])]
        inner += [self.after] if self.after else []
        text = "\n\n".join(block for block in inner if block)
        if self.folded is None:
            return text
        return f"<details><summary>{self.folded}</summary>\n\n{text}\n\n</details>"

    def _keep(self, room: int) -> tuple[str, ...]:
        left = room - len(self.before) - len(self.after) - len(self.folded or "") - len(self.rest) - _NOTE
        for count, line in enumerate(self.lines):
            left -= len(line) + 1
            if left < 0:
                return self.lines[:count]
        return self.lines


def fit(parts: Sequence[Part], limit: int) -> str:
    """All parts in order under ``limit`` characters: what one does not need the later ones may have."""
    whole = _join([part.draw() for part in parts])
    if len(whole) < limit:
        return whole
    drawn: list[str] = []
    left = limit - _NOTE - 2
    for number, part in enumerate(parts):
        text = part.draw(left // (len(parts) - number) - 2)
        drawn.append(text)
        left -= len(text) + 2
    gone = sum(not text for text in drawn)
    more = [f"{gone:,} more sections are in report.html."] if gone else []
    return _join([*drawn, *more])


def _join(texts: Sequence[str]) -> str:
    return "\n\n".join(text for text in texts if text) + "\n"


def table_part(content: TextTable, *, folded: str | None = None, after: str = "", bold: int | None = None) -> Part:
    """The table as a part, every cell escaped; the row of number ``bold`` stands out."""
    rule = "|".join("---" if index in content.words else "---:" for index in range(len(content.columns)))
    lines = [_draw_row(row, strong=index == bold) for index, row in enumerate(content.rows)]
    return Part(
        before=f"{_draw_row(content.columns)}\n|{rule}|",
        lines=tuple(lines),
        after=after,
        rest="more rows are in report.html and results.csv",
        folded=folded,
    )


def list_part(texts: Sequence[str], *, before: str = "", folded: str | None = None) -> Part:
    """Lines of Markdown as a list."""
    return Part(before=before, lines=tuple(f"- {text}" for text in texts), folded=folded)


def _draw_row(cells: Sequence[str], *, strong: bool = False) -> str:
    drawn = [formatting.markdown(formatting.shorten(text, LETTERS)) for text in cells]
    if strong:
        drawn = [f"**{text}**" if text else "" for text in drawn]
    return f"| {' | '.join(drawn)} |"
