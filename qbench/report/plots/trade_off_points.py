"""The points of the trade-off: which cases have one, which are on the front, which matter most, and what they tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.progress.table import TextTable
from qbench.report.plots import ratios
from qbench.report.plots.cases import SHIPPED, FrameCase, name_kind
from qbench.report.plots.picture import be, count_examples, count_of, name_case, upper
from qbench.stats.interval_type import Interval


@dataclass(frozen=True, kw_only=True)
class Point:
    """A case in the picture: ``time`` over the fastest fp32, ``change`` of accuracy in shown units, or its score where
    the suite gives a least one."""

    case: FrameCase
    time: Interval
    change: Interval


def list_points(cases: Sequence[FrameCase], setting: str) -> list[Point]:
    """The cases of a setting that have a time and a change; of fp32 the change is none, but a twin's."""
    points = []
    for case in cases:
        time = case.interval("over_best_fp32")
        if case.setting != setting or time is None or time.value <= 0:
            continue
        change = ratios.change_of(case)
        if (
            change is None
            and not case.is_contender
            and case["accuracy.value"] is not None
            and case["case.recipe"] in (None, "default")
        ):
            score = (case.number("accuracy.value") or 0.0) * (case.number("metric.scale") or 1.0)
            change = Interval(value=score if ratios.is_absolute([case]) else 0.0)
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


def choose_points(points: Sequence[Point], most: int) -> tuple[list[Point], list[Point]]:
    """The points that are drawn with their bars and names, those that matter most first; and the others."""
    front = find_front(points)
    ranked = sorted(points, key=lambda point: _importance(point, front))
    return ranked[:most], ranked[most:]


def _worth(point: Point) -> float:
    """The change of accuracy, better is greater."""
    return -point.change.value if point.case["metric.higher_is_better"] is False else point.change.value


def limit_of(points: Sequence[Point]) -> float | None:
    """Where the limit on accuracy lies; None where the suite sets none, or several."""
    return ratios.limit_of([point.case for point in points])


def is_absolute(points: Sequence[Point]) -> bool:
    """Whether scores are shown, and not changes."""
    return ratios.is_absolute([point.case for point in points])


def _importance(point: Point, front: Sequence[Point]) -> tuple[int, float]:
    order = {"ship": 0, "either": 0, "keep fp32": 0, "undecided": 1, "tied": 3}
    rank = order.get(point.case.role, 5)
    if point.case["decision.is_best_fp32"]:
        rank = min(rank, 2)
    if any(point is other for other in front):
        rank = min(rank, 4)
    return rank, point.time.value


def conclude_trade_off(points: Sequence[Point]) -> str:
    """Who is both faster and accurate enough, what is shipped, n and the level of the bars."""
    rated = [point for point in points if point.case.is_contender]
    faster = [point for point in rated if (point.time.high or point.time.value) < 1]
    count = count_of(len(faster), len(rated), name_kind(point.case for point in rated))
    first = f"{count} {be(len(faster))} faster than the fastest fp32"
    if faster and limit_of(points) is not None:
        accurate = sum(point.case["accuracy.verdict"] == "PASS" for point in faster)
        first += _count_accurate(accurate, len(faster))
    sentences = [first]
    if shipped := [point for point in points if point.case.role in SHIPPED]:
        word = "To ship" if shipped[0].case.role == "ship" else "Either will do"
        sentences.append(f"{word}: {'; or '.join(map(tell_point, shipped))}")
    sentences += [f"Keep {name_case(point.case)}" for point in points if point.case.role == "keep fp32"][:1]
    level = ratios.describe_bars(point.case for point in rated).replace(" limits", "")
    sentences.append(
        f"{count_examples([p.case for p in points])}; thin lines are limits: of time 95 %, of accuracy {level}"
    )
    if shades := _explain_shades(points):
        sentences.append(upper("; ".join(shades)))
    return f"{'. '.join(sentences)}."


def _count_accurate(accurate: int, faster: int) -> str:
    if faster == 1:
        return ", and it keeps the accuracy limit" if accurate else ", but does not keep the accuracy limit"
    counted = "all" if accurate == faster else accurate or "none"
    return f", and {counted} of them {'keeps' if accurate == 1 else 'keep'} the accuracy limit"


def _explain_shades(points: Sequence[Point]) -> list[str]:
    tie = points[0].case.number("decision.tie")
    shades = []
    if tie is not None and any(point.case.role in (*SHIPPED, "tied") for point in points):
        shades.append(f"green: within {formatting.fixed(tie * 100, 0)} % of the fastest (a tie)")
    if limit_of(points) is not None:
        below = "a lower score" if is_absolute(points) else "more accuracy lost"
        shades.append(f"red: {below} than the suite allows")
    if len(find_front(points)) > 1:
        shades.append("grey steps: nothing is both faster and more accurate")
    return shades


def tell_point(point: Point) -> str:
    """``static int8 on ONNX Runtime, 0.48 [0.47, 0.49] times the time, -0.2 [-0.9, +0.5] points``."""
    unit = str(point.case["metric.unit"] or "")
    change = f"{ratios.show(point.change, signed=not is_absolute([point]), least=1)} {unit}".rstrip()
    return f"{name_case(point.case)}, {ratios.show(point.time)} times the time, {change}"


def tabulate_points(points: Sequence[Point]) -> TextTable:
    """Time and change of each case."""
    unit = str(points[0].case["metric.unit"] or "")
    rows = [
        (
            point.case.variant,
            ratios.show(point.time),
            ratios.show(point.change, signed=not is_absolute(points), least=1),
            _word(point.case),
        )
        for point in sorted(points, key=lambda point: point.time.value)
    ]
    change = str(points[0].case["accuracy.metric"]) if is_absolute(points) else "accuracy change"
    change = f"{change}, {unit}" if unit else change
    return TextTable(columns=("variant", "time over the fastest fp32", change, "decision"), rows=tuple(rows))


def _word(case: FrameCase) -> str:
    return "fastest fp32" if not case.role and case["decision.is_best_fp32"] else case.role
