"""Rules of qbench/report/columns/artifact.py: what is shipped, and how much of it is what its mode names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_records import fp32, int8

from qbench.decide.judged import SuiteRules, judge
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.report.cells import Cell, list_rows
from qbench.report.columns import draw_cells


def shown(record: Record, key: str = "coverage") -> Cell:
    """What the table of cases has in a column of a case beside its fp32."""
    judged = judge([fp32(), record], MetricInfo(name="top1"), SuiteRules())
    (row,) = (row for row in list_rows(judged, judged.records, 1e-3) if row.record is record)
    return draw_cells(row)[key]


def covered(record: Record, **changes: Any) -> Record:
    """The record with another coverage."""
    assert record.artifact is not None
    assert record.artifact.coverage is not None
    return replace(record, artifact=replace(record.artifact, coverage=replace(record.artifact.coverage, **changes)))


BF16, FEW_BITS, DYNAMIC = (f"net/{mode}/openvino/t1/b1" for mode in ("bf16", "weight_only", "dynamic"))


@pytest.mark.parametrize(
    ("record", "cell"),
    [
        (int8(), Cell(text="98.0 %", sort=0.98, hint="12 of 13 layers")),
        (int8(coverage=0.0), Cell(text="0 %", sort=0.0, hint="12 of 13 layers", tone="bad")),
        (int8(coverage=0.01), Cell(text="1.0 %", sort=0.01, hint="12 of 13 layers")),
        (covered(int8(), macs_int8=None), Cell(text="not known", hint="12 of 13 layers", tone="unsure")),
        (
            covered(int8(), macs_int8=None, unknown="an operator of your own"),
            Cell(text="not known", hint="an operator of your own", tone="unsure"),
        ),
        (int8(BF16), Cell(text="0 %, 98.0 % in bf16", sort=0.0, hint="12 of 13 layers in bf16")),
        (int8(FEW_BITS), Cell(text="0 %, 98.0 % 4-bit weights", sort=0.0, hint="12 of 13 layers 4-bit weights")),
        (
            int8(DYNAMIC, coverage=0.001),
            Cell(
                text="0.1 %",
                limits="practically fp32",
                sort=0.001,
                hint="12 of 13 layers; 0.1 % of its multiply-accumulates in int8, below the 1 % of "
                "quantize.dynamic.min_coverage",
                tone="bad",
            ),
        ),
        (replace(int8(), artifact=None), Cell()),
        (covered(int8()), Cell(text="98.0 %", sort=0.98, hint="12 of 13 layers")),
    ],
)
def test_the_share_of_the_work_is_told_with_its_layers(record: Record, cell: Cell) -> None:
    """Of what its mode names, beside int8 where that is something else; nothing in int8 is bad, and so is next to
    nothing; why it is not known is said."""
    assert shown(record) == cell


def test_a_size_is_exact_and_held_against_its_fp32() -> None:
    """Where there is one; of fp32 itself there is no share."""
    assert shown(int8(), "size") == Cell(text="260 kB", sort=260_000, hint="260,000 bytes")
    assert shown(int8(), "ratio") == Cell(text="26 %", sort=0.26, hint="0.260")
    assert shown(replace(int8(), artifact=None), "size") == Cell()
    assert shown(replace(int8(), artifact=None), "ratio") == Cell()
    base = fp32()
    judged = judge([base], MetricInfo(name="top1"), SuiteRules())
    (row,) = list_rows(judged, judged.records, 1e-3)
    assert draw_cells(row)["ratio"] == Cell()
