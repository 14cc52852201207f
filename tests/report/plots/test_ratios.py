"""Rules of qbench/report/plots/ratios.py: what is shown of a case's accuracy, and where its limit lies."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

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


def test_a_time_of_nothing_is_no_ratio() -> None:
    """Nor has one without limits any."""
    for value, low, high, expected in (
        (0.5, 0.4, 0.625, (2.0, 1.6, 2.5)),
        (0.5, None, None, (2.0, None, None)),
        (0.0, 0.0, 0.0, None),
        (-1.0, None, None, None),
    ):
        columns: dict[str, Any] = {
            "over_best_fp32.value": [1.0, value], "over_best_fp32.low": low, "over_best_fp32.high": high,
        }  # fmt: skip
        ratio = ratios.over_best(read(**columns)[1])
        assert (None if ratio is None else (ratio.value, ratio.low, ratio.high)) == expected


def test_different_limits_are_no_limit() -> None:
    """A picture has one line for all of its cases; an error is limited above."""
    columns: dict[str, Any] = {"case.id": ["a", "b"], "case.mode": "static", "accuracy.at_least": None}
    assert ratios.limit_of(read(**columns, **{"accuracy.margin": [1.0, 2.0]})) is None
    assert ratios.limit_of(read(**columns, **{"accuracy.margin": [1.0, 1.0]})) == -1.0
    assert ratios.limit_of(read(**columns, **{"accuracy.margin": 1.0, "metric.higher_is_better": False})) == 1.0
    assert ratios.limit_of(read(**columns)) is None


@pytest.mark.parametrize(
    ("columns", "start"),
    [
        ({"accuracy.at_least": 10.0}, 100.0),
        ({"accuracy.at_least": 10.0, "metric.scale": 100.0}, 10_000.0),
        ({"accuracy.at_least": None}, 0.0),
        ({"accuracy.at_least": 10.0, "accuracy.value": None}, 0.0),
        ({"accuracy.at_least": 10.0, "accuracy.delta.value": None}, 0.0),
    ],
)
def test_a_change_is_counted_from_the_score_of_fp32_where_scores_are_shown(columns: Any, start: float) -> None:
    """As far as both are known."""
    assert ratios._find_start(read(**columns)[1]) == pytest.approx(start)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (None, "The change of accuracy of 1 int8 variant; the suite sets no limit. "),
        ("PASS", "The one int8 variant keeps the accuracy. "),
        ("FAIL", "1 loses more. "),
    ],
)
def test_a_caption_says_how_many_keep_the_accuracy(verdict: str | None, said: str) -> None:
    """Nothing of a limit where the suite sets none."""
    columns: dict[str, Any] = {"accuracy.verdict": [None, verdict], "accuracy.at_least": None, "accuracy.n": 8}
    text = ratios._conclude_changes(read(**columns))
    assert said in text or verdict == "PASS", text
    assert ("sets no limit" in text) == (verdict is None)


def test_a_single_case_has_its_picture() -> None:
    """Its axis is called by its metric, and by which way is better."""
    frame = pd.DataFrame(
        {
            "case.id": ["int8"], "case.setting": "s", "case.model": "net", "case.mode": "static",
            "case.backend": "x86", "case.variant": "static · x86", "case.threads": 1, "case.batch_size": 1,
            "status": "ok", "over_best_fp32.value": 0.5, "accuracy.metric": "sqnr",
            "accuracy.value": 38.0, "accuracy.delta.value": -1.0, "metric.scale": 1.0, "metric.unit": "dB",
            "metric.higher_is_better": False,
        }
    )  # fmt: skip
    (axes, *_) = [each for each in ratios.accuracy(frame).axes if each.get_xlabel()]
    assert axes.get_xlabel() == "change of sqnr, dB (left is better)"
