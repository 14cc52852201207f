"""The one table of all measured cases: columns that some case fills, rows in reading order, what a row says besides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench import formatting
from qbench.decide import cases
from qbench.decide.decision import Decision
from qbench.decide.judged import Judged
from qbench.record.schema import Record
from qbench.report import case_columns, palette
from qbench.report.case_columns import CaseColumn
from qbench.report.cells import CaseRow, Cell, accuracy_limit, count_digits, latency_unit, list_rows
from qbench.report.recipes import describe_recipe
from qbench.report.ruling import FP32, Ruling, Rulings, rank
from qbench.stats.thresholds import Outcome

# Left to right as a decider asks; what a cell holds besides stands under its text.
ORDER = (
    "minimized",
    "p50",
    "best",
    "speedup",
    "delta",
    "accuracy",
    "twin",
    "flips",
    "size",
    "coverage",
    "control",
    "p90",
)
KEPT = ("p50", "best", "delta", "size")  # also where no case has a value
# What an unfolded row calls the hints of its cells.
_UNFOLDED = {
    "time": "p50",
    "compared": "speedup",
    "noise check": "control",
    "accuracy": "accuracy",
    "limit": "judged",
    "changed answers": "flips",
    "in int8": "coverage",
    "size": "size",
}
MANY = 30  # rows; from there on the table scrolls within itself


@dataclass(frozen=True, kw_only=True)
class CaseLine:
    """One case: its place in the matrix, a backend's colour, a mode's marker, its verdict, cells by column key, and
    what else is known of it as pairs."""

    record: Record
    color: str
    marker: str
    ruling: Ruling
    group: str
    cells: Mapping[str, Cell]
    facts: tuple[tuple[str, str], ...]
    outcome: Outcome | None

    @property
    def accuracy_sign(self) -> str:
        """``✓ OK``: whether its accuracy holds the limit; empty where it was not judged."""
        sign = None if self.outcome is None else palette.VERDICTS[self.outcome]
        return "" if sign is None else f"{sign.symbol} {sign.word}"

    @property
    def findable(self) -> str:
        """What a reader may type to find it."""
        return f"{self.record.case.id} {self.record.case.variant} {self.ruling.word}".lower()


@dataclass(frozen=True, kw_only=True)
class CaseTable:
    """``keys``: which of the columns that say where a case stands differ between cases; ``choices``: what the table can
    be narrowed to, by name."""

    keys: tuple[str, ...]
    columns: tuple[CaseColumn, ...]
    lines: tuple[CaseLine, ...]
    choices: Mapping[str, tuple[str, ...]]
    many: bool

    @property
    def folded(self) -> frozenset[str]:
        """The columns that a phone shows of a case once it is opened."""
        return frozenset(ORDER) - {"minimized", *KEPT}


def case_table(judged: Judged, decisions: Sequence[Decision], rulings: Rulings) -> CaseTable:
    """All measured cases, setting by setting: what is shipped first, then the other candidates, fp32, the rest."""
    measured = [record for record in judged.records if record.status == "ok"]
    unit = latency_unit(measured)
    digits = count_digits(judged, measured, unit[0])
    lines: list[CaseLine] = []
    for decision in decisions:
        records = cases.of_setting(decision.setting, measured)
        rows = {row.record.case.id: row for row in list_rows(judged, records, unit[0], digits)}
        lines += [_line(rows[record.case.id], rulings[record.case.id]) for record in rank(judged, records, rulings)]
    by_key = {column.key: column for column in case_columns.list_columns(judged, unit[1])}
    by_key["delta"] = replace(by_key["delta"], title=f"{by_key['delta'].title}{accuracy_limit(judged, measured)}")
    columns = tuple(by_key[key] for key in ORDER if key in by_key and (key in KEPT or _is_filled(key, lines)))
    return CaseTable(
        keys=tuple(key for key in ("model", "threads", "batch_size", "host") if _differs(key, measured)),
        columns=columns,
        lines=tuple(lines),
        choices=_choices(lines),
        many=len(lines) > MANY,
    )


def _differs(key: str, records: Sequence[Record]) -> bool:
    return len({getattr(record.case, key) for record in records}) > 1


def _is_filled(key: str, lines: Sequence[CaseLine]) -> bool:
    return any(line.cells[key].sort is not None for line in lines)


def _choices(lines: Sequence[CaseLine]) -> dict[str, tuple[str, ...]]:
    named = {key: [getattr(line.record.case, key) for line in lines] for key in ("model", "mode", "backend")}
    named["verdict"] = [line.ruling.word for line in lines]
    distinct = {name: tuple(dict.fromkeys(values)) for name, values in named.items()}
    return {name: values for name, values in distinct.items() if len(values) > 1}


def _line(row: CaseRow, ruling: Ruling) -> CaseLine:
    record, cells = row.record, case_columns.draw_cells(row)
    shipped = ruling.picked or ruling.word == "keep"
    return CaseLine(
        record=record,
        color=palette.variable_of(record.case.backend),
        marker=palette.SYMBOLS[palette.marker_of(record.case.mode)],
        ruling=ruling,
        group="picked" if shipped else "fp32" if ruling.word in FP32 else "" if ruling.candidate else "out",
        cells=cells,
        facts=tuple(_facts(record, cells)),
        outcome=row.judged.outcome(record),
    )


def _facts(record: Record, cells: Mapping[str, Cell]) -> Iterator[tuple[str, str]]:
    """What hangs on single cells, so that no mouse is needed to read it."""
    yield "case", record.case.id
    if recipe := describe_recipe(record):
        yield "recipe", recipe
    for name, key in _UNFOLDED.items():
        if hint := cells[key].hint:
            yield name, hint
    if record.throughput_per_second is not None:
        yield "throughput", f"{record.throughput_per_second:,.0f} examples a second"
    if record.latency is not None:
        yield "calls", f"{record.latency.n:,} kept"
    if record.cold_start is not None:
        load, first = record.cold_start.load_seconds, record.cold_start.first_call_seconds
        yield "cold start", f"{formatting.duration(load)} to load, {formatting.duration(first)} for the first call"
