"""The points of the trade-off: which cases have one, which are on the front, and which matter most; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qbench.report.plots import ratios
from qbench.report.plots.cases import MOST, Case, Estimate


@dataclass(frozen=True, kw_only=True)
class Point:
    """A case in the picture: ``time`` over the fastest fp32, ``change`` of accuracy in shown units."""

    case: Case
    time: Estimate
    change: Estimate


def list_points(cases: Sequence[Case], setting: str) -> list[Point]:
    """The cases of a setting that have a time and a change; of fp32 the change is none, but a twin's."""
    points = []
    for case in cases:
        time = case.estimate("over_best_fp32")
        if case.setting != setting or time is None or time.value <= 0:
            continue
        change = case.estimate("accuracy.delta", scale=case.number("metric.scale") or 1.0)
        if (
            change is None
            and not case.is_int8
            and case["accuracy.value"] is not None
            and case["case.recipe"] in (None, "default")
        ):
            change = Estimate(0.0, None, None)
        if change is not None:
            points.append(Point(case=case, time=time, change=change))
    return points


def find_front(points: Sequence[Point]) -> list[Point]:
    """Those that no other is faster and at least as accurate than, the fastest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.time.value, -_worth(point))):
        if not front or _worth(point) > _worth(front[-1]):
            front.append(point)
    return front


def choose_points(points: Sequence[Point], most: int = MOST) -> tuple[list[Point], list[Point]]:
    """The points that are drawn with their bars and names, those that matter most first; and the others."""
    front = find_front(points)
    ranked = sorted(points, key=lambda point: _importance(point, front))
    return ranked[:most], ranked[most:]


def _worth(point: Point) -> float:
    """The change of accuracy, better is greater."""
    return -point.change.value if point.case["metric.higher_is_better"] is False else point.change.value


def shown_margin(points: Sequence[Point]) -> float | None:
    """The most that may be lost, in shown units; None where the suite sets no margin, or several."""
    limit = ratios.limit_of([point.case for point in points])
    return None if limit is None else abs(limit)


def _importance(point: Point, front: Sequence[Point]) -> tuple[int, float]:
    order = {"ship": 0, "either": 0, "keep fp32": 0, "undecided": 1, "tied": 3}
    rank = order.get(point.case.role, 5)
    if point.case["decision.is_best_fp32"]:
        rank = min(rank, 2)
    if any(point is other for other in front):
        rank = min(rank, 4)
    return rank, point.time.value
