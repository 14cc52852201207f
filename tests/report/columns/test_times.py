"""The columns of times."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_records import fp32, int8, latency, speedup

from qbench.decide.judged import SuiteRules, judge
from qbench.record.stored_run import MetricInfo
from qbench.report.cells import Cell, list_rows
from qbench.report.columns import draw_cells, times
from qbench.stats.interval_type import Interval


def row(**latency: float | None) -> Any:
    record = SimpleNamespace(latency=SimpleNamespace(**latency) if latency else None)
    return SimpleNamespace(record=record)


@pytest.mark.parametrize(
    ("latency", "cell"),
    [
        ({}, Cell()),
        (
            {"p99_seconds": 2e-3, "p99_low": 1.5e-3, "p99_high": 2.5e-3},
            Cell(text="2.00 ms", limits="[1.50 ms, 2.50 ms]"),
        ),
        ({"p99_seconds": 2e-3, "p99_low": 1.5e-3, "p99_high": None}, Cell(text="2.00 ms")),
        ({"p99_seconds": 2e-3, "p99_low": None, "p99_high": 2.5e-3}, Cell(text="2.00 ms")),
    ],
)
def test_p99_has_limits_where_both_are_known(latency: dict[str, float | None], cell: Cell) -> None:
    """A case without a latency has an empty cell."""
    assert times._p99(row(**latency)) == cell


def shown(key: str, **changes: Any) -> Cell:
    """What the table of cases has in a column of an int8 case beside its fp32."""
    record = int8(**changes)
    judged = judge([fp32(), record], MetricInfo(name="top1"), SuiteRules())
    return draw_cells(list_rows(judged, judged.records, 1e-3)[1])[key]


@pytest.mark.parametrize(
    ("low", "high", "tone"),
    [
        (1.0, 1.01, ""),
        (0.99, 1.0, ""),
        (1.001, 1.02, "unsure"),
        (0.9, 0.999, "unsure"),
        (None, None, ""),
        (None, 2.0, ""),
    ],
)
def test_a_noise_check_that_leaves_out_1_is_doubtful(low: float | None, high: float | None, tone: str) -> None:
    """Up to its limits it holds the truth; without limits nothing is told."""
    cell = shown("control", speedup=speedup(control=Interval(value=1.005, low=low, high=high)))
    assert cell.tone == tone
    assert cell.hint == ("1 is outside: biased by noise" if tone else "")
    assert shown("control", speedup=None) == shown("control", speedup=speedup(control=None)) == Cell()


def test_a_speed_up_says_over_what_and_of_how_many_processes() -> None:
    """One is one."""
    assert [shown("speedup", speedup=speedup(processes=count)).hint for count in (1, 2)] == [
        "against net/fp32/torch/t1/b1, paired, 1 process",
        "against net/fp32/torch/t1/b1, paired, 2 processes",
    ]
    assert shown("speedup", speedup=None) == Cell()


def test_times_of_calls_are_in_the_unit_of_their_column() -> None:
    """The median with its limits, nine in ten without; a dash for what is not known."""
    assert str(shown("p50")) == "1.00 [0.99, 1.01]"
    assert (str(shown("p90")), shown("p90").sort) == ("1.10", pytest.approx(1.1e-3))
    bare = replace(latency(1e-3), p50_seconds=None, p90_seconds=None)
    assert shown("p50", latency=bare) == shown("p90", latency=bare) == Cell()
    assert shown("p50", latency=None) == shown("p90", latency=None) == Cell()


@pytest.mark.parametrize(
    ("blocks", "everything", "cell"),
    [
        (None, 2e-3, Cell()),
        ("all", 2e-3, Cell(text="all")),
        ("undisturbed", None, Cell(text="undisturbed")),
        ("undisturbed", 2e-3, Cell(text="undisturbed", limits="(of all: 2.00 ms)")),
    ],
)
def test_blocks_of_the_median_are_told(blocks: str | None, everything: float | None, cell: Cell) -> None:
    """With the median of all where that is another one."""
    assert times._p50_from(row(p50_from=blocks, p50_all_seconds=everything)) == cell
    assert times._p50_from(row()) == Cell()
