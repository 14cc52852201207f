"""What a column of the cases is: its value, how that is written, and what it is called wherever a reader sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from qbench import formatting
from qbench.decide.judged import Judged
from qbench.report.cells import CaseRow, Cell
from qbench.stats.interval_type import Interval

Kind = Literal["text", "number", "count", "flag", ""]
Read = Callable[[CaseRow], Any]
Draw = Callable[[CaseRow], Cell]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the cases.

    ``kind``, ``unit`` and ``meaning`` are those of ``qbench.load``, results.csv and the guide (no kind: it is not in
    them); ``read`` gives the value where that is no field of the record, ``draw`` the cell where it holds more than the
    value. ``title`` heads it in tables: with a ``key`` in the table of cases, without one in that of what else was
    measured, without a title in neither. ``terminal``, ``markdown`` and ``card`` are what these call it, where that is
    something else; ``hint`` says what it means. Titles and hints may name ``{time}`` and the other words of
    ``list_shown``. The page shows it ``within`` the cell of another column; ``note`` is what it calls the hint of a
    cell where a row is unfolded.
    """

    name: str
    kind: Kind = ""
    unit: str = ""
    meaning: str = ""
    read: Read | None = None
    draw: Draw | None = None
    key: str = ""
    title: str = ""
    terminal: str = ""
    markdown: str = ""
    card: str = ""
    hint: str = ""
    within: str = ""
    note: str = ""
    applies: Callable[[Judged], bool] = lambda judged: True

    def value(self, row: CaseRow) -> Any:
        """What frames hold; None for none."""
        return row.stored.get(self.name) if self.read is None else self.read(row)

    def cell(self, row: CaseRow) -> Cell:
        """What tables hold; a dash for none."""
        if self.draw is not None:
            return self.draw(row)
        return Cell(text=self.write(self.value(row)) or formatting.DASH)

    def write(self, value: Any) -> str | None:
        """A value as tables show it; None for none."""
        if value is None:
            return None
        if self.kind == "flag":
            return "yes" if value else "no"
        if self.unit == "s":
            return formatting.duration(value)
        if self.unit == "bytes":
            return formatting.size(value)
        if self.unit == "0 to 1":
            return formatting.share(value, 0)
        if self.unit == "ratio":
            return formatting.number(Interval(value=value))
        return str(value) if self.kind == "text" else f"{value:,.0f}"


class Family:
    """Columns that belong together, in the order of results.csv. Each is ``name|kind|unit|meaning|title``, without the
    last bar where it has no title; a line in brackets is what the names after it begin with."""

    def __init__(self) -> None:
        self.columns: list[Column] = []
        self._prefix = ""

    def list(self, lines: str, read: Mapping[str, Read] | None = None) -> None:
        """Adds columns, of which ``read`` says by name how those are made that are no fields of the record."""
        for line in lines.strip().splitlines():
            if line.startswith("["):
                self._prefix = line.strip("[]")
            else:
                self._add(line, read=(read or {}).get(line.partition("|")[0]))

    def drawn(self, line: str, **fields: Any) -> Callable[[Draw], Draw]:
        """Adds a column whose cell is what the function below it gives; ``fields``: other fields of ``Column``."""

        def add(draw: Draw) -> Draw:
            self._add(line, draw=draw, **fields)
            return draw

        return add

    def _add(self, line: str, **fields: Any) -> None:
        name, kind, unit, meaning, title = line.split("|") if line.count("|") == 4 else (*line.split("|"), "")
        fields |= {"name": f"{self._prefix}{name}", "kind": kind, "unit": unit, "meaning": meaning, "title": title}
        self.columns.append(Column(**fields))
