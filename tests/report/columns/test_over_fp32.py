"""Rules of qbench/report/columns/over_fp32.py: how many times as fast as the fastest fp32 a case is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import FP32, fp32, int8, latency

from qbench.decide.judged import SuiteRules, judge
from qbench.record.schema import Fastest, Record
from qbench.record.stored_run import MetricInfo
from qbench.report.cells import REFERENCE, CaseRow, Cell, list_rows
from qbench.report.columns import COLUMNS, draw_cells

FASTEST = Fastest(baseline=FP32, value=2.0, low=1.6, high=2.5)


def row_of(record: Record, *others: Record) -> CaseRow:
    """A case beside others."""
    judged = judge([*others, record], MetricInfo(name="top1"), SuiteRules())
    return next(row for row in list_rows(judged, judged.records, 1e-3) if row.record is record)


def over(row: CaseRow) -> tuple[float | None, ...]:
    """Its time over that of the fastest fp32, with its limits, as frames have it."""
    return tuple(COLUMNS[f"over_best_fp32.{end}"].value(row) for end in ("value", "low", "high"))


@pytest.mark.parametrize(
    ("record", "cell", "times"),
    [
        (
            int8(speedup_fastest=FASTEST),
            Cell(text="2.00", limits="[1.60, 2.50]", sort=2.0, low=1.6, high=2.5, hint=f"against {FP32}", tone="good"),
            (0.5, 0.4, 0.625),
        ),
        (
            int8(speedup_fastest=Fastest(baseline=FP32, value=2.0, low=None, high=None)),
            Cell(text="2.00", sort=2.0, hint=f"against {FP32}"),
            (0.5, None, None),
        ),
        (int8(), Cell(text="2.50", sort=2.5), (0.4, None, None)),
        (int8(latency=latency(0.0025)), Cell(text="1.00", sort=1.0), (1.0, None, None)),
        (int8(latency=latency(0.005)), Cell(text="0.50", sort=0.5, tone="bad"), (2.0, None, None)),
        (int8(latency=None), Cell(), (None, None, None)),
    ],
)
def test_a_case_is_held_against_the_fastest_fp32(record: Record, cell: Cell, times: tuple[float | None, ...]) -> None:
    """As measured side by side, else by the two medians: slower is bad, as fast is not."""
    row = row_of(record, fp32())
    assert draw_cells(row)["best"] == cell
    assert over(row) == pytest.approx(times)


def test_the_fastest_fp32_is_the_reference_and_others_are_held_against_it() -> None:
    """A slower fp32 is no variant that is bad; a case that failed has no time."""
    base, other = fp32(), replace(fp32("net/fp32/onnxruntime/t1/b1"), latency=latency(0.005))
    assert draw_cells(row_of(base, other, int8()))["best"] == REFERENCE
    assert over(row_of(base, other, int8())) == (1.0, None, None)
    assert draw_cells(row_of(other, base, int8()))["best"] == Cell(text="0.50", sort=0.5)
    measured = replace(base, speedup_fastest=replace(FASTEST, value=1.0))
    assert draw_cells(row_of(measured, other))["best"] == REFERENCE
    toned = replace(other, speedup_fastest=Fastest(baseline=FP32, value=0.5, low=0.4, high=0.6))
    assert draw_cells(row_of(toned, base))["best"].tone == ""
    row = row_of(int8(speedup_fastest=FASTEST), base)
    assert over(replace(row, record=replace(row.record, status="failed"))) == (None, None, None)


def test_a_metric_is_told_of_cases_with_a_score() -> None:
    """Its scale, unit and direction; nothing without a score."""
    names = [f"metric.{field}" for field in ("scale", "unit", "higher_is_better")]
    assert [COLUMNS[name].value(row_of(int8(), fp32())) for name in names] == [100.0, "points", True]
    assert [COLUMNS[name].value(row_of(int8(accuracy=None), fp32())) for name in names] == [None] * 3
