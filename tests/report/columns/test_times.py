"""The columns of times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qbench.report.cells import Cell
from qbench.report.columns import times


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
