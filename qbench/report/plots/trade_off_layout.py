"""Where everything of a trade-off lies: axes that are fitted to the int8 points, marks, names, the limit; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from qbench import formatting
from qbench.report.plots import canvas, scale
from qbench.report.plots.canvas import SIZE
from qbench.report.plots.cases import MOST, RINGED, limits_of
from qbench.report.plots.labels import Box, Label, Placed, meet, place_labels
from qbench.report.plots.picture import minus
from qbench.report.plots.ratios import name_limit
from qbench.report.plots.scale import Axis
from qbench.report.plots.trade_off_points import Point, choose_points, is_absolute, limit_of

LEFT, RIGHT = 46.0, 6.0  # beside a panel
_OF_TIME, _OF_CHANGE = 0.5, 0.25  # of an axis at least the int8 points have; a limit on accuracy is worth more
_ROOM = 0.3  # of an axis, before its first value
_ABREAST = 9.0  # points between two arrows at one place of the edge
Spot = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Format:
    """How large a picture and its panels are, and how many of a panel's points have bars and a name: ``most``, where
    there are more the usual number."""

    width: float
    height: float
    most: int

    @property
    def across(self) -> float:
        """The width of a panel."""
        return self.width - LEFT - RIGHT


PHONE = Format(width=canvas.WIDTH, height=250.0, most=MOST)
DESK = Format(width=canvas.WIDE, height=340.0, most=2 * MOST)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where everything of a panel lies. ``chosen`` have bars and, where there is room, a label; ``rest`` are drawn
    small; ``spots`` are where the marks of both stand on the axes. Labels, and ``limit``, what stands beside the limit
    where there is room, are in points from the panel's lower left corner, as are the ``centers`` of the chosen."""

    format: Format
    across: Axis
    up: Axis
    upside_down: bool
    chosen: Sequence[Point]
    rest: Sequence[Point]
    spots: Sequence[Spot]
    centers: Sequence[Spot]
    labels: Sequence[Placed | None]
    limit: tuple[str, Box] | None

    @property
    def unnamed(self) -> int:
        """How many points have no name beside them."""
        return sum(label is None for label in self.labels) + len(self.rest)


def arrange(points: Sequence[Point], form: Format) -> Layout:
    """Finds the places of the labels, those that matter most first; there is more room before the fastest where one
    that a decision names would have no label."""
    across, up = find_axes(points)
    layout = _arrange_on(points, form, across, up)
    if all(label is not None for point, label in zip(layout.chosen, layout.labels, strict=True) if is_named(point)):
        return layout
    return _arrange_on(points, form, replace(across, low=across.at(-_ROOM)), up)


def _arrange_on(points: Sequence[Point], form: Format, across: Axis, up: Axis) -> Layout:
    upside_down = points[0].case["metric.higher_is_better"] is False

    def place(spot: Spot) -> Spot:
        height = up.fraction(up.clip(spot[1]))
        return across.fraction(spot[0]) * form.across, (1 - height if upside_down else height) * form.height

    chosen, rest = choose_points(points, form.most if len(points) <= form.most else MOST)
    spots = _find_spots([*chosen, *rest], across, up, form)
    centers = [place(spot) for spot in spots]
    marks = [
        _box_around(at, 9.0 if point.case.role else 5.5)
        for at, point in zip(centers[: len(chosen)], chosen, strict=True)
    ]
    marks += [_box_around(at, 3.5) for at in centers[len(chosen) :]]
    taken, limit = [], None
    if (bound := limit_of(points)) is not None:
        line = place((1.0, bound))[1]
        beyond = up.side_of(bound) * (-1 if upside_down else 1)
        words = {0: "", -1: "▾ ", 1: "▴ "}[beyond] + name_limit([point.case for point in points], bound)
        limit = _place_limit(f"{words} {points[0].case['metric.unit'] or ''}", line, marks, form)
        taken = [] if limit is None else [limit[1], (0.0, line - 1, form.across, line + 1)]
    names = [_size_label(point, at, across, up) for point, at in zip(chosen, centers, strict=False)]
    labels = place_labels(names, [*marks, *taken], (0.0, 1.0, form.across, form.height))
    return Layout(format=form, across=across, up=up, upside_down=upside_down, chosen=chosen, rest=rest, spots=spots,
                  centers=centers[: len(chosen)], labels=labels, limit=limit)  # fmt: skip


def find_axes(points: Sequence[Point]) -> tuple[Axis, Axis]:
    """The axes of time and change, fitted to the int8 points and what a decision names; fp32 and the limit are on them
    where they do not press these together, and at the edge otherwise."""
    fitted = [point for point in points if point.case.is_contender] or list(points)
    references = [point for point in points if not any(point is other for other in fitted)]
    times = [point.time.value for point in fitted]
    tie = points[0].case.number("decision.tie") or 0.0
    across = scale.fit(
        partial(scale.logarithmic, words=scale.times, ticks=7),
        times,
        limits_of(point.time for point in fitted),
        [min(times) * (1 + tie), *_named(points, "time")],
        [1.0, *(point.time.value for point in references)],
        share=_OF_TIME,
    )
    bound = limit_of(points)
    beyond = 0.75 if is_absolute(points) else 1.25  # so that there is room below the limit
    beside = [point.change.value for point in references] + ([] if is_absolute(points) else [0.0])
    up = scale.fit(
        scale.linear,
        [point.change.value for point in fitted],
        limits_of(point.change for point in fitted),
        _named(points, "change"),
        [*beside, *([] if bound is None else [bound * beyond])],
        share=_OF_CHANGE,
    )
    return across, up


def _named(points: Sequence[Point], field: str) -> list[float]:
    return [getattr(point, field).value for point in points if point.case.role]


def _find_spots(points: Sequence[Point], across: Axis, up: Axis, form: Format) -> list[Spot]:
    """Where each mark stands: at its values, or at the edge; those beyond one edge at one height stand abreast, the
    farthest outermost."""
    spots = [(across.clip(point.time.value), up.clip(point.change.value)) for point in points]
    beyond = [i for i, point in enumerate(points) if across.side_of(point.time.value)]
    filled: dict[tuple[int, int], int] = {}
    for i in sorted(beyond, key=lambda i: -abs(across.at(0.5) - points[i].time.value)):
        side = across.side_of(points[i].time.value)
        height = round(up.fraction(spots[i][1]) * form.height / _ABREAST)
        inward = min(filled.get((side, height), 0) * _ABREAST, form.across / 4) / form.across
        filled[side, height] = filled.get((side, height), 0) + 1
        spots[i] = across.at(across.fraction(spots[i][0]) - side * inward), spots[i][1]
    return spots


def label_of(point: Point, across: Axis, up: Axis) -> str:
    """The variant; with its values where they lie beyond the axes."""
    text = canvas.fit_text(point.case.variant, 170, SIZE)
    beyond = []
    if across.side_of(point.time.value):
        beyond.append(f"{point.time.value:.2g}\N{MULTIPLICATION SIGN}")
    if up.side_of(point.change.value):
        beyond.append(minus(formatting.fixed(point.change.value, 1, signed=not is_absolute([point]))))
    return f"{text} ({', '.join(beyond)})" if beyond else text


def is_named(point: Point) -> bool:
    """Whether a decision names it."""
    return point.case.role in RINGED


def _size_label(point: Point, at: Spot, across: Axis, up: Axis) -> Label:
    wide = canvas.text_width(label_of(point, across, up), SIZE, bold=is_named(point))
    return Label(x=at[0], y=at[1], width=wide, height=SIZE + 1, reach=9.0 if point.case.role else 6.0)


def _place_limit(words: str, line: float, marks: Sequence[Box], form: Format) -> tuple[str, Box] | None:
    """What the limit is, beside its line, where no mark is in the way."""
    text = minus(words.rstrip())
    wide = canvas.text_width(text, SIZE)
    for left in (form.across - wide - 2, 4.0, (form.across - wide) / 2):
        for bottom in (line - SIZE - 5, line + 3):
            box = (left, bottom, left + wide, bottom + SIZE + 1)
            inside = bottom >= 1 and box[3] <= form.height
            if inside and not any(meet(box, mark, 1.0) for mark in marks):
                return text, box
    return None


def _box_around(at: Spot, reach: float) -> Box:
    return at[0] - reach, at[1] - reach, at[0] + reach, at[1] + reach
