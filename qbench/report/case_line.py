"""A row of the page's table of cases: what is shown, linked to, searched and taken away of one case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from qbench import formatting
from qbench.decide.names import variant_name
from qbench.record.schema import Record
from qbench.report import palette
from qbench.report.cells import Cell
from qbench.report.ruling import Ruling
from qbench.stats.thresholds import Outcome

Raw = str | float | None


@dataclass(frozen=True, kw_only=True)
class CaseLine:
    """One case: its place in the matrix, a backend's colour, a mode's marker, its verdict, cells by column key, what
    else is known of it as pairs, and the raw values of its cells, as ``CaseTable.heads`` calls them."""

    record: Record
    color: str
    marker: str
    ruling: Ruling
    group: str
    cells: Mapping[str, Cell]
    facts: tuple[tuple[str, str], ...]
    outcome: Outcome | None
    raw: tuple[Raw, ...] = ()

    @property
    def anchor(self) -> str:
        """What a link to it ends with, in every report that has the case."""
        return f"case/{formatting.clean(self.record.case.id)}"

    @property
    def accuracy_sign(self) -> str:
        """``✓ OK``: whether its accuracy holds the limit; empty where it was not judged."""
        sign = None if self.outcome is None else palette.VERDICTS[self.outcome]
        return "" if sign is None else f"{sign.symbol} {sign.word}"

    @property
    def findable(self) -> str:
        """What a reader may type to find it: its id, its names here and on the cards, its verdict."""
        case = self.record.case
        return f"{case.id} {case.variant} {variant_name(self.record)} {self.ruling.word}".lower()
