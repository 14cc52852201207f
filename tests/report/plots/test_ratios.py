"""Rules of qbench/report/plots/ratios.py: what is shown of a case's accuracy, and where its limit lies."""

from __future__ import annotations

import pandas as pd

from qbench.report.plots import ratios, trade_off_points
from qbench.report.plots.cases import FrameCase, read_cases


def read(**columns: float | None) -> list[FrameCase]:
    """An fp32 with 100 dB and an int8 with 38, held against what the columns say."""
    frame = pd.DataFrame(
        {
            "case.id": ["fp32", "int8"],
            "case.setting": "s",
            "case.mode": ["fp32", "static"],
            "status": "ok",
            "over_best_fp32.value": [1.0, 0.5],
            "accuracy.metric": "sqnr",
            "accuracy.value": [100.0, 38.0],
            "accuracy.delta.value": [None, -62.0],
            "accuracy.delta.low": [None, -62.5],
            "accuracy.delta.high": [None, -61.5],
            "accuracy.delta.level": [None, 0.9],
            "accuracy.verdict": [None, "PASS"],
            "metric.scale": 1.0,
            "metric.higher_is_better": True,
            **columns,
        }
    )
    return read_cases(frame)


def test_beside_a_least_score_scores_are_shown() -> None:
    """Axis, limit and intervals are those of the score, of fp32 as well; no change of -62 dB, no limit of -90."""
    cases = read(**{"accuracy.at_least": 10.0, "accuracy.margin": None})
    change = ratios.change_of(cases[1])
    assert change is not None
    assert (change.value, change.low, change.high) == (38.0, 37.5, 38.5)
    assert ratios.describe_bars(cases) == "90 % limits, those of the test"
    assert ratios.show_change(cases[1]).startswith("38")
    limit = ratios.limit_of(cases)
    assert limit == 10
    assert ratios.name_limit(cases, limit) == "at least 10"
    points = trade_off_points.list_points(cases, "s")
    assert [point.change.value for point in points] == [100.0, 38.0]


def test_beside_a_margin_changes_are_shown() -> None:
    """With their sign, and the margin as a loss."""
    cases = read(**{"accuracy.margin": 90.0})
    assert ratios.show_change(cases[1]).startswith("\N{MINUS SIGN}62")
    assert ratios.limit_of(cases) == -90
    assert [point.change.value for point in trade_off_points.list_points(cases, "s")] == [0.0, -62.0]


def test_of_equal_accuracy_the_fastest_alone_is_on_the_front() -> None:
    """A slower one that is no more accurate is no trade-off; nor is one of two that are equal in both."""
    frame = pd.DataFrame(
        {
            "case.id": list("abcd"),
            "case.setting": "s",
            "case.mode": "static",
            "status": "ok",
            "over_best_fp32.value": [0.5, 0.6, 0.7, 0.7],
            "accuracy.delta.value": [-1.0, -1.0, 0.0, 0.0],
            "metric.scale": 1.0,
            "metric.higher_is_better": True,
        }
    )
    front = trade_off_points.find_front(trade_off_points.list_points(read_cases(frame), "s"))
    assert [point.case["case.id"] for point in front] == ["a", "c"]
