"""Rules of qbench/report/case_columns.py: a column is defined once, and whoever shows it takes it from there."""

from __future__ import annotations

from made_records import fp32, int8

from qbench.decide.decision import decide
from qbench.decide.judged import Judged, Rules, judge
from qbench.record.stored_run import MetricInfo
from qbench.report.candidates import candidates
from qbench.report.case_columns import CASE_COLUMNS, draw_cells, list_columns
from qbench.report.case_table import ORDER, case_table
from qbench.report.cells import list_rows
from qbench.report.ruling import rule


def judged(metric: str = "top1") -> Judged:
    """An fp32 and an int8 case."""
    return judge([fp32(), int8()], MetricInfo(name=metric), Rules())


def test_a_column_stands_once() -> None:
    """No key twice, a cell for each, and the page shows only columns that there are."""
    keys = [column.key for column in CASE_COLUMNS]
    assert len(set(keys)) == len(keys)
    (row, *_) = list_rows(judged(), judged().records, 1e-3)
    assert list(draw_cells(row)) == keys
    assert set(ORDER) <= set(keys)


def test_page_and_summary_call_a_column_alike() -> None:
    """The unit of times and the reference's name stand in the one title that both show."""
    run = judged()
    decisions = decide(run)
    rulings = rule(run, decisions)
    on_page = {column.key: column.title for column in case_table(run, decisions, rulings).columns}
    in_summary = candidates(decisions[0], run, rulings).open.columns
    assert {on_page[key] for key in ("p50", "best", "size")} <= set(in_summary)


def test_titles_name_units_and_metric_whatever_the_metric_is_called() -> None:
    """Braces in a metric's name are letters, not a place to fill."""
    columns = {column.key: column for column in list_columns(judged("f{x}"), "µs")}
    assert columns["p50"].title == "time, µs"
    assert columns["accuracy"].title == "f{x}, %"
    assert "{levels}" not in columns["delta"].hint
    assert columns["delta"].title == "accuracy change, points"
