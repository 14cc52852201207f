"""Rules of qbench/report/columns: a column is defined once, and whoever shows it takes it from there."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import fp32, int8

from qbench.decide.decision import decide
from qbench.decide.judged import Judged, SuiteRules, judge
from qbench.record.schema import Record, Roofline
from qbench.record.stored_run import MetricInfo
from qbench.report import case_table, columns, terminal
from qbench.report.cells import CaseRow, list_rows
from qbench.report.columns import COLUMNS, OPEN, STORED, arrange, draw_cells, list_shown
from qbench.report.columns.column import Family
from qbench.report.ruling import rule
from qbench.report.summary import candidates

GUIDE = Path(__file__).parents[2] / "qbench/guide/python.md"


def fields_of(kind: type, prefix: str = "") -> Iterator[str]:
    """The dotted names of all that a record can hold."""
    hints = typing.get_type_hints(kind)
    for part in dataclasses.fields(kind):
        hint = hints[part.name]
        options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
        nested = next((option for option in options if dataclasses.is_dataclass(option)), None)
        if nested is None:
            yield f"{prefix}{part.name}"
        else:
            yield from fields_of(nested, f"{prefix}{part.name}.")


def write_guide() -> str:
    """The columns as the guide's table."""
    rows = [f"| `{name}` | {column.kind} | {column.unit} | {column.meaning} |" for name, column in STORED.items()]
    rows += [f"| `{start}*` | as it is | | {meaning} |" for start, meaning in OPEN.items()]
    return "\n".join(("| column | kind | unit | meaning |", "|---|---|---|---|", *rows, ""))


def test_every_field_of_a_record_has_its_column() -> None:
    """A new field of the record is explained here, or is a mapping whose keys are columns."""
    mappings = {start.rstrip(".") for start in OPEN}
    assert set(fields_of(Record)) - mappings <= set(STORED)


def test_every_column_says_what_it_holds() -> None:
    """Short enough for a table's cell, without a bar that would end it."""
    assert [name for name, column in STORED.items() if not 3 <= len(column.meaning) <= 100] == []
    assert "|" not in "".join(column.meaning + column.unit for column in COLUMNS.values())


def test_the_guide_holds_the_same_table() -> None:
    """Each column with its kind, unit and meaning, in the order in which it is written."""
    assert write_guide() in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("latency.n", 1234, "1,234"),
        ("cold_start.load_seconds", 0.02, "20.0 ms"),
        ("memory.loaded_rss_bytes", 100_000_000, "100 MB"),
        ("interference.shared", 0.6, "60 %"),
        ("sequential.speedup", 1.5, "1.50"),
        ("speedup.steady", False, "no"),
        ("latency.p50_from", "all", "all"),
        ("memory.peak_rss_bytes", None, None),
    ],
)
def test_a_value_is_written_as_its_kind_and_unit_have_it(name: str, value: object, written: str | None) -> None:
    """One rule for all columns: what was not measured is nothing, never 0."""
    assert COLUMNS[name].write(value) == written


def judged(metric: str = "top1") -> Judged:
    """An fp32 and an int8 case."""
    return judge([fp32(), int8()], MetricInfo(name=metric), SuiteRules())


def test_a_column_stands_once() -> None:
    """No name and no key twice; a cell for each key; the orders of tables name columns that there are."""
    modules = (columns.case, columns.over_fp32, columns.artifact, columns.times, columns.accuracy)
    count = sum(len(module.family.columns) for module in modules) + len(columns.times.roofline.columns)
    assert len(COLUMNS) == count
    keys = [column.key for column in COLUMNS.values() if column.key]
    assert len(set(keys)) == len(keys)
    (row, *_) = list_rows(judged(), judged().records, 1e-3)
    assert list(draw_cells(row)) == keys
    assert {*case_table.ORDER.split(), *case_table.UNFOLDED.split(), *terminal.WIDE.split()} <= set(keys)
    assert {column.within for column in COLUMNS.values()} - {""} <= set(keys)
    titled = {name for name, column in COLUMNS.items() if column.title and not column.key}
    assert titled == set(case_table.DETAILS.split())


def test_a_new_column_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page, the wide table of the terminal, the frame and the guide have it without a word elsewhere."""
    family = Family()

    @family.drawn("latency.calls_a_day|number|1/s|calls in a day|a day", key="daily", note="calls a day",
                  read=lambda row: 86400 / row.record.latency.p50_seconds)  # fmt: skip
    def _daily(row: CaseRow) -> columns.Cell:
        return columns.Cell(text="many", sort=1.0, hint="as they come")

    (column,) = family.columns
    for registry in (COLUMNS, STORED):
        monkeypatch.setitem(registry, column.name, column)
    run = judged()
    decisions = decide(run)
    rulings = rule(run, decisions)
    page = case_table.case_table(run, decisions, rulings)
    assert page.columns[-1].title == "a day"
    assert ("calls a day", "as they come") in page.lines[0].facts
    assert "a day" in terminal.draw(run, rulings, width=None, wide=True).splitlines()[1]
    assert "| `latency.calls_a_day` | number | 1/s | calls in a day |" in write_guide()
    assert column.value(CaseRow(judged=run, record=run.records[0])) == pytest.approx(86400 / 0.0025)


def test_a_table_has_its_order_and_then_the_rest() -> None:
    """What an order does not name stands behind, as the columns are defined."""
    assert arrange(["a", "b", "c", "d"], "d b") == ["d", "b", "a", "c"]


def test_page_and_summary_call_a_column_alike() -> None:
    """The unit of times and the reference's name stand in the one title that both show."""
    run = judged()
    decisions = decide(run)
    rulings = rule(run, decisions)
    on_page = {column.key: column.title for column in case_table.case_table(run, decisions, rulings).columns}
    in_summary = candidates(decisions[0], run, rulings).open.columns
    assert {on_page[key] for key in ("p50", "best", "size")} <= set(in_summary)


def test_titles_name_units_and_metric_whatever_the_metric_is_called() -> None:
    """Braces in a metric's name are letters, not a place to fill."""
    shown = list_shown(judged("f{x}"), "µs")
    assert shown["p50"].title == "time, µs"
    assert (shown["accuracy"].title, shown["accuracy"].terminal) == ("f{x}, %", "f{x}")
    assert "{levels}" not in shown["delta"].hint
    names = [list_shown(judged("m" * length), "ms")["accuracy"].terminal for length in (20, 21)]
    assert names == ["m" * 20, f"{'m' * 9}\u2026{'m' * 10}"]
    assert (shown["delta"].title, shown["delta"].markdown) == ("accuracy change, points", "f{x} change, points")


def test_a_peak_is_known_where_rate_and_share_are() -> None:
    """Two operations for each multiply-accumulate; neither without a time, nor without a count."""
    known = replace(int8(), roofline=Roofline(macs=10**6, peak_fraction=0.5))
    rates = [
        (known, (2e9, 4e9)),
        (replace(known, latency=None), (None, None)),
        (replace(known, roofline=None), (None, None)),
        (replace(known, roofline=Roofline(macs=None, peak_fraction=0.5)), (None, None)),
        (replace(known, roofline=Roofline(macs=10**6, peak_fraction=None)), (2e9, None)),
    ]
    for record, (rate, peak) in rates:
        row = CaseRow(judged=judged(), record=record)
        assert (columns.times._rate(row), columns.times._peak(row)) == (pytest.approx(rate), pytest.approx(peak))
