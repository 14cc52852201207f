"""The page's tables of the measured cases: the one of all, with what a row says besides, and what else was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench import formatting
from qbench.decide import cases
from qbench.decide.decision_type import Decision
from qbench.decide.judged import Judged
from qbench.progress.table import TextTable
from qbench.record.schema import Record
from qbench.report import palette
from qbench.report.case_line import CaseLine, Raw
from qbench.report.cells import CaseRow, Cell, accuracy_limit, count_digits, latency_unit, list_rows
from qbench.report.columns import COLUMNS, arrange, draw_cells, list_shown
from qbench.report.columns.column import Column
from qbench.report.raw_table import list_raw
from qbench.report.recipes import describe_recipe
from qbench.report.ruling import FP32, Ruling, Rulings, rank

# Left to right as a decider asks.
ORDER = "minimized p50 best speedup delta accuracy twin flips size coverage control p90"
KEPT = ("p50", "best", "delta", "size")  # also where no case has a value
# The same of what else was measured.
DETAILS = """
latency.n latency.effective_n latency.p99_seconds speedup.steady sequential.mean_seconds sequential.speedup
roofline.peak_fraction throughput_per_second cold_start.load_seconds cold_start.first_call_seconds
cold_start.next_calls_seconds memory.loaded_rss_bytes memory.peak_rss_bytes
interference.involuntary_switches interference.page_faults interference.shared latency.p50_from
"""
UNFOLDED = "p50 speedup control accuracy judged flips coverage size"  # whose hints a row has
MANY = 30  # rows; from there on the table scrolls within itself


@dataclass(frozen=True, kw_only=True)
class CaseTable:
    """``keys``: which of the columns that say where a case stands differ between cases; ``heads`` of the raw values;
    ``choices``: what the table can be narrowed to, by name."""

    keys: tuple[str, ...]
    columns: tuple[Column, ...]
    heads: tuple[Raw, ...]
    lines: tuple[CaseLine, ...]
    choices: Mapping[str, tuple[str, ...]]
    many: bool

    @property
    def folded(self) -> frozenset[str]:
        """The columns that a phone shows of a case once it is opened."""
        return frozenset(column.key for column in self.columns) - {"minimized", *KEPT}


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
    by_key = list_shown(judged, unit[1])
    by_key["delta"] = replace(by_key["delta"], title=f"{by_key['delta'].title}{accuracy_limit(judged, measured)}")
    keys = arrange([key for key, column in by_key.items() if not column.within], ORDER)
    columns = tuple(by_key[key] for key in keys if key in KEPT or _is_filled(key, lines))
    places = tuple(key for key in ("model", "threads", "batch_size", "host") if _differs(key, measured))
    heads, *raw = list_raw(judged, places, [column.key for column in columns], lines)
    return CaseTable(
        keys=places,
        columns=columns,
        heads=heads,
        lines=tuple(replace(line, raw=values) for line, values in zip(lines, raw, strict=True)),
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
    record, cells = row.record, draw_cells(row)
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
    if recipe := describe_recipe(record):
        yield "recipe", recipe
    notes = {column.key: column.note for column in COLUMNS.values() if column.note}
    for key in arrange(notes, UNFOLDED):
        if hint := cells[key].hint:
            yield notes[key], hint
    if record.throughput_per_second is not None:
        yield "throughput", f"{record.throughput_per_second:,.0f} examples a second"
    if record.latency is not None:
        yield "calls", f"{record.latency.n:,} kept"
    if record.cold_start is not None:
        load, first = record.cold_start.load_seconds, record.cold_start.first_call_seconds
        yield "cold start", f"{formatting.duration(load)} to load, {formatting.duration(first)} for the first call"


def list_details(judged: Judged) -> TextTable:
    """What else was measured of each case: cold start, memory, interference, steadiness, the literature's figures; a
    column that no case has anything for is left out."""
    measured = [record for record in judged.records if record.status == "ok" and record.latency is not None]
    titled = arrange([name for name, column in COLUMNS.items() if column.title and not column.key], DETAILS)
    rows = [CaseRow(judged=judged, record=record) for record in measured]
    cells = {name: [str(COLUMNS[name].cell(row)) for row in rows] for name in titled}
    filled = {COLUMNS[name].title: texts for name, texts in cells.items() if {*texts} - {formatting.DASH}}
    ids = [record.case.id for record in measured]
    return TextTable(columns=("case", *filled), rows=tuple(zip(ids, *filled.values(), strict=True)))
