"""Rules of qbench/report/plots/trade_off.py: what lies behind the points."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from qbench.report.plots.cases import read_cases
from qbench.report.plots.scale import Axis
from qbench.report.plots.trade_off import _shade
from qbench.report.plots.trade_off_points import Point, list_points

TO_100 = Axis(low=-10.0, high=100.0)


class Drawn:
    """In place of matplotlib's axes: where its lines and bands lie."""

    def __init__(self) -> None:
        self.at: list[tuple[str, tuple[float, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *places, **_: self.at.append((name, places))


def points(**columns: Any) -> list[Point]:
    """An fp32 and two variants, one twice and one three times as fast."""
    frame = pd.DataFrame(
        {
            "case.id": ["fp32", "a", "b"],
            "case.setting": "s",
            "case.mode": ["fp32", "static", "static"],
            "status": "ok",
            "over_best_fp32.value": [1.0, 0.5, 0.4],
            "accuracy.metric": "m",
            "accuracy.value": [10.0, 9.0, 8.0],
            "accuracy.delta.value": [None, -1.0, -2.0],
            "metric.scale": 1.0,
            "metric.higher_is_better": True,
            **columns,
        }
    )
    return list_points(read_cases(frame), "s")


@pytest.mark.parametrize(
    ("columns", "band"),
    [
        ({"accuracy.margin": 3.0}, (-10.0, -3.0)),
        ({"accuracy.margin": 3.0, "metric.higher_is_better": False}, (3.0, 100.0)),
        ({"accuracy.at_least": 9.5}, (-10.0, 9.5)),
        ({"accuracy.margin": 12.0}, (-12.0, -12.0)),
    ],
)
def test_what_the_limit_forbids_is_shaded(columns: dict[str, Any], band: tuple[float, float]) -> None:
    """Up to the end of the axis on the worse side, which for a metric of which less is better is above; a limit that
    lies beyond the axis shades nothing of it."""
    axes = Drawn()
    _shade(axes, points(**columns), TO_100, TO_100)
    limit = band[0] if columns.get("metric.higher_is_better") is False else band[1]
    assert [(name, at) for name, at in axes.at if name == "axhspan"] == [("axhspan", band)]
    assert axes.at[-1] == ("axhline", (limit,))
    assert (("axhline", (0,)) in axes.at) == ("accuracy.at_least" not in columns)


def test_without_a_limit_there_are_the_lines_of_fp32_alone() -> None:
    """No change of accuracy, and the time of the fastest fp32."""
    axes = Drawn()
    _shade(axes, points(), TO_100, TO_100)
    assert axes.at == [("axhline", (0,)), ("axvline", (1,))]


def test_ties_with_the_fastest_that_may_be_shipped_are_shaded() -> None:
    """From its time to as much more as the suite calls a tie."""
    axes = Drawn()
    _shade(axes, points(**{"decision.tie": 0.03, "decision.role": [None, "tied", "ship"]}), TO_100, TO_100)
    assert [at for name, at in axes.at if name == "axvspan"] == [(0.4, pytest.approx(0.4 * 1.03))]
