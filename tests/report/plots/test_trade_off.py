"""Rules of qbench/report/plots/trade_off.py: what lies behind the points."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from qbench.report.plots.cases import read_cases
from qbench.report.plots.scale import Axis
from qbench.report.plots.trade_off import _shade, list_drawings
from qbench.report.plots.trade_off_points import (
    Point,
    _count_accurate,
    _explain_shades,
    choose_points,
    conclude_trade_off,
    find_front,
    list_points,
)

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


@pytest.mark.parametrize(
    ("accurate", "faster", "told"),
    [
        (1, 1, ", and it keeps the accuracy limit"),
        (0, 1, ", but does not keep the accuracy limit"),
        (2, 2, ", and all of them keep the accuracy limit"),
        (1, 2, ", and 1 of them keeps the accuracy limit"),
        (0, 2, ", and none of them keep the accuracy limit"),
    ],
)
def test_of_the_faster_ones_those_that_are_accurate_are_counted(accurate: int, faster: int, told: str) -> None:
    """In words where it is all or none."""
    assert _count_accurate(accurate, faster) == told


def names(chosen: list[Point]) -> list[str]:
    """The ids of these points."""
    return [point.case.key for point in chosen]


def test_a_front_is_what_no_other_is_faster_and_as_accurate_as() -> None:
    """The fastest first; of an error less is better; of two that are as fast the more accurate one."""
    assert names(find_front(points())) == ["b", "a", "fp32"]
    worse: dict[str, Any] = {"accuracy.delta.value": [None, -2.0, -1.0]}
    assert names(find_front(points(**worse))) == ["b", "fp32"]
    assert names(find_front(points(**{"metric.higher_is_better": False}))) == ["b"]
    tied: dict[str, Any] = {"over_best_fp32.value": [1.0, 0.4, 0.4]}
    assert names(find_front(points(**tied))) == ["a", "fp32"]


def test_what_is_shipped_is_drawn_before_the_fastest_fp32_and_what_ties() -> None:
    """Then the front, then the rest by its time."""
    roles: dict[str, Any] = {"decision.role": [None, "ship", "tied"], "decision.is_best_fp32": [True, False, False]}
    chosen, rest = choose_points(points(**roles), 2)
    assert (names(chosen), names(rest)) == (["a", "fp32"], ["b"])
    behind: dict[str, Any] = {"accuracy.delta.value": [None, -2.0, -1.0], "decision.is_best_fp32": False}
    assert names(choose_points(points(**behind), 3)[0]) == ["b", "fp32", "a"]
    open_first: dict[str, Any] = {"decision.role": [None, "undecided", "tied"], "decision.is_best_fp32": False}
    assert names(choose_points(points(**open_first), 3)[0]) == ["a", "b", "fp32"]


def test_a_point_has_a_time_and_a_change() -> None:
    """Of fp32 none, as far as it was scored; a recipe of fp32 that is not the default one is no reference."""
    assert [point.change.value for point in points()] == [0.0, -1.0, -2.0]
    assert names(points(**{"over_best_fp32.value": [1.0, 0.0, None]})) == ["fp32"]
    assert names(points(**{"accuracy.value": [None, 9.0, 8.0]})) == ["a", "b"]
    assert names(points(**{"accuracy.delta.value": [None, None, -2.0]})) == ["fp32", "b"]
    for recipe, there in (("default", True), (None, True), ("mine", False)):
        assert ("fp32" in names(points(**{"case.recipe": recipe}))) == there
    assert names(points(**{"case.setting": ["s", "s", "other"]})) == ["fp32", "a"]


def test_shades_are_explained_where_they_are_drawn() -> None:
    """The tie with its share, what the suite forbids, the front."""
    assert _explain_shades(points()) == ["grey steps: nothing is both faster and more accurate"]
    tied: dict[str, Any] = {"decision.tie": 0.03, "decision.role": [None, "tied", "ship"], "accuracy.margin": 1.0}
    assert _explain_shades(points(**tied))[:2] == [
        "green: within 3 % of the fastest (a tie)",
        "red: more accuracy lost than the suite allows",
    ]
    assert "red: a lower score than the suite allows" in _explain_shades(points(**{"accuracy.at_least": 9.5}))
    alone: dict[str, Any] = {"decision.tie": 0.03, "metric.higher_is_better": False}
    assert _explain_shades(points(**alone)) == []


def test_six_settings_have_their_picture() -> None:
    """One of a single point has none and counts for none; each says which it is where there are several."""
    frame = pd.concat(
        [
            pd.DataFrame(
                {
                    "case.id": [f"f{number}", f"a{number}"], "case.setting": f"s{number}",
                    "case.mode": ["fp32", "static"], "case.backend": ["torch", "x86"], "case.variant": ["f", "a"],
                    "status": "ok", "over_best_fp32.value": [1.0, 0.5 if number else None],
                    "accuracy.metric": "m", "accuracy.value": [10.0, 9.0], "accuracy.delta.value": [None, -1.0],
                    "metric.scale": 1.0, "metric.higher_is_better": True,
                }
            )
            for number in range(8)
        ],
        ignore_index=True,
    )  # fmt: skip
    drawings = list(list_drawings(frame, read_cases(frame)))
    assert [drawing.key for drawing in drawings] == ["pareto", *(f"pareto-{number}" for number in range(2, 7))]
    assert drawings[0].heading == "Time against accuracy: s1"
    single = frame[frame["case.setting"] == "s1"]
    (alone,) = list_drawings(single, read_cases(single))
    assert (alone.heading, alone.more, alone.unnamed) == ("Time against accuracy", 0, 0)


@pytest.mark.parametrize(("times", "margin", "counted"), [(0.5, 3.0, True), (0.5, None, False), (1.5, 3.0, False)])
def test_those_that_keep_a_limit_are_counted_among_the_faster_ones(
    times: float, margin: float | None, counted: bool
) -> None:
    """Where there are some, and a limit."""
    columns = {"over_best_fp32.value": [1.0, times, 1.5], "accuracy.margin": margin, "accuracy.verdict": "PASS"}
    caption = conclude_trade_off(points(**columns))
    assert (" keeps the accuracy limit" in caption) is counted
