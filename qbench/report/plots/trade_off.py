"""The trade-off: time over the fastest fp32 against the change of accuracy, one panel a setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from qbench.report.plots import canvas, legend, rows, scale
from qbench.report.plots.canvas import ROLES, SIZE, WIDTH
from qbench.report.plots.cases import RINGED, FrameCase, limits_of, list_settings, measured_cases, nothing_to_draw
from qbench.report.plots.labels import Box, Label, Placed, meet, place_labels
from qbench.report.plots.picture import Drawing, minus
from qbench.report.plots.ratios import name_limit
from qbench.report.plots.scale import Axis
from qbench.report.plots.trade_off_points import (
    Point,
    choose_points,
    conclude_trade_off,
    find_front,
    is_absolute,
    limit_of,
    list_points,
    tabulate_points,
)

if TYPE_CHECKING:
    import pandas as pd

KEY = "pareto"  # what the keys of its pictures begin with
MOST_SETTINGS = 6  # that are shown, one picture a setting
_LEFT, _RIGHT, _HEAD, _FOOT, _PANEL = 46.0, 6.0, 24.0, 38.0, 250.0
_MARK = 8.0
_WIDE = WIDTH - _LEFT - _RIGHT
_AREA: Box = (0.0, 1.0, _WIDE, _PANEL)


def pareto(frame: pd.DataFrame) -> Any:
    """A matplotlib figure of a frame of cases (``qbench.load``): up is more accurate, left is faster. Raises
    ``UsageError`` where no case has both a time and a change."""
    cases = measured_cases(frame)
    panels = [(name, points) for name in list_settings(cases) if (points := list_points(cases, name))]
    if not panels:
        raise nothing_to_draw("pareto", "no case of the frame has both a time and a change of accuracy")
    cases_of_points = [point.case for _, points in panels for point in points]
    with canvas.settings():
        key = legend.arrange(cases_of_points, WIDTH - 8)
        each = _HEAD + _PANEL + _FOOT + (18 if len(panels) > 1 else 0)
        figure = canvas.new_figure(each * len(panels) + key.height + 4)
        for number, (name, points) in enumerate(panels):
            bottom = key.height + 4 + each * (len(panels) - 1 - number) + _FOOT
            axes = canvas.add_axes(figure, _LEFT, bottom, WIDTH - _LEFT - _RIGHT, _PANEL)
            _draw_panel(axes, name if len(panels) > 1 else "", points)
        legend.draw(canvas.add_axes(figure, 4, 0, WIDTH - 8, key.height), key)
    return figure


def list_drawings(frame: pd.DataFrame, cases: Sequence[FrameCase]) -> Iterator[Drawing]:
    """A picture for each of the first settings."""
    settings = [name for name in list_settings(cases) if len(list_points(cases, name)) > 1]
    for number, name in enumerate(settings[:MOST_SETTINGS], start=1):
        points = list_points(cases, name)
        chosen, rest = choose_points(points)
        yield Drawing(
            key=KEY if number == 1 else f"{KEY}-{number}",
            heading=f"Time against accuracy: {name}" if len(settings) > 1 else "Time against accuracy",
            draw=partial(pareto, frame[frame["case.setting"] == name]),
            caption=conclude_trade_off(points),
            data=tabulate_points(chosen),
            more=len(rest),
            unnamed=_count_unnamed(points),
        )


def _count_unnamed(points: Sequence[Point]) -> int:
    """How many points of a panel have no name beside them: there is no room, or they are drawn faint."""
    layout = _arrange(points)
    return sum(label is None for label in layout.labels) + len(layout.rest)


# --- the panel ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Where everything of a panel lies, in points from its lower left corner: ``chosen`` have bars, a place and, where
    there is room, a label; ``rest`` are drawn faint; ``limit`` is what stands beside the limit, where there is room."""

    across: Axis
    up: Axis
    upside_down: bool
    chosen: Sequence[Point]
    rest: Sequence[Point]
    centers: Sequence[tuple[float, float]]
    labels: Sequence[Placed | None]
    limit: tuple[str, Box] | None


def _arrange(points: Sequence[Point]) -> _Layout:
    """Finds the places of the labels, those that matter most first."""
    across, up = _find_scales(points)
    upside_down = points[0].case["metric.higher_is_better"] is False

    def place(x: float, y: float) -> tuple[float, float]:
        height = up.fraction(up.clip(y))
        return across.fraction(across.clip(x)) * _WIDE, (1 - height if upside_down else height) * _PANEL

    chosen, rest = choose_points(points)
    centers, faint = ([place(point.time.value, point.change.value) for point in some] for some in (chosen, rest))
    marks = [_box_around(at, 9.0 if point.case.role else 5.5) for at, point in zip(centers, chosen, strict=True)]
    marks += [_box_around(at, 3.5) for at in faint]
    taken, limit = [], None
    if (bound := limit_of(points)) is not None:
        line = place(1.0, bound)[1]
        words = name_limit([point.case for point in points], bound)
        limit = _place_limit(f"{words} {points[0].case['metric.unit'] or ''}", line, marks)
        taken = [] if limit is None else [limit[1], (0.0, line - 1, _WIDE, line + 1)]
    names = [_size_label(point, at, across, up) for point, at in zip(chosen, centers, strict=True)]
    labels = place_labels(names, [*marks, *taken], _AREA)
    return _Layout(across=across, up=up, upside_down=upside_down, chosen=chosen, rest=rest, centers=centers,
                   labels=labels, limit=limit)  # fmt: skip


def _size_label(point: Point, at: tuple[float, float], across: Axis, up: Axis) -> Label:
    wide = canvas.text_width(_label(point, across, up), SIZE, bold=_is_named(point))
    return Label(x=at[0], y=at[1], width=wide, height=SIZE + 1, reach=9.0 if point.case.role else 6.0)


def _is_named(point: Point) -> bool:
    return point.case.role in RINGED


def _place_limit(words: str, line: float, marks: Sequence[Box]) -> tuple[str, Box] | None:
    """What the limit is, beside its line, where no mark is in the way."""
    text = minus(words.rstrip())
    wide = canvas.text_width(text, SIZE)
    for left in (_WIDE - wide - 2, 4.0, (_WIDE - wide) / 2):
        for bottom in (line - SIZE - 5, line + 3):
            box = (left, bottom, left + wide, bottom + SIZE + 1)
            if bottom >= 1 and not any(meet(box, mark, 1.0) for mark in marks):
                return text, box
    return None


def _draw_panel(axes: Any, heading: str, points: Sequence[Point]) -> None:
    layout = _arrange(points)
    across, up = layout.across, layout.up
    across.apply(axes, "time over fastest fp32 (log) · left is faster")
    up.apply(axes, "", "y")
    if layout.upside_down:
        axes.invert_yaxis()
    _style(axes, points, heading)
    _shade(axes, points, across, up)
    front = find_front(points)
    steps = [(across.clip(point.time.value), up.clip(point.change.value)) for point in front]
    if len(steps) > 1:
        axes.step(*zip(*steps, strict=True), where="post", color=ROLES["muted"], linewidth=1.3, zorder=2)
    for point in layout.rest:
        _draw_faint(axes, point, across, up)
    for point in reversed(layout.chosen):  # what matters most lies on top
        _draw_point(axes, point, across, up)
    _write_labels(axes, layout)


def _find_scales(points: Sequence[Point]) -> tuple[Axis, Axis]:
    times = [point.time.value for point in points]
    ends = limits_of(point.time for point in points)
    tie = points[0].case.number("decision.tie") or 0.0
    across = scale.logarithmic(
        times, ends, [1.0, min(times) * (1 + tie), *_named(points, "time")], words=scale.times, ticks=7
    )
    changes = [point.change.value for point in points]
    limits = limits_of(point.change for point in points)
    bound = limit_of(points)
    beyond = 0.75 if is_absolute(points) else 1.25  # so that there is room below the limit
    must = [*([] if bound is None else [bound * beyond]), *_named(points, "change")]
    must += [] if is_absolute(points) else [0.0]
    return across, scale.linear(changes, limits, must)


def _named(points: Sequence[Point], field: str) -> list[float]:
    return [getattr(point, field).value for point in points if point.case.role]


def _style(axes: Any, points: Sequence[Point], heading: str) -> None:
    canvas.style_axes(axes)
    if heading:
        at = (-(_LEFT - 4) / (WIDTH - _LEFT - _RIGHT), 1 + 24 / _PANEL)
        text = canvas.fit_text(heading, WIDTH - 8, SIZE, bold=True)
        axes.text(*at, text, transform=axes.transAxes, color=ROLES["ink"], fontsize=SIZE, weight="bold")
    case = points[0].case
    unit = f", {case['metric.unit']}" if case["metric.unit"] else ""
    title = f"{'' if is_absolute(points) else 'change of '}{case['accuracy.metric']}{unit} · up is better"
    at = (-(_LEFT - 4) / (WIDTH - _LEFT - _RIGHT), 1 + 8 / _PANEL)
    text = canvas.fit_text(title, WIDTH - 8, SIZE)
    axes.text(*at, text, transform=axes.transAxes, color=ROLES["muted"], fontsize=SIZE)


def _shade(axes: Any, points: Sequence[Point], across: Axis, up: Axis) -> None:
    """The ties with the best, and what the limit on accuracy forbids."""
    if not is_absolute(points):
        axes.axhline(0, color=ROLES["grid"], linewidth=1.0, zorder=0)
    axes.axvline(1, color=ROLES["grid"], linewidth=1.0, zorder=0)
    tied = [point.time.value for point in points if point.case.role in ("ship", "either", "tied")]
    tie = points[0].case.number("decision.tie")
    if tied and tie:
        axes.axvspan(min(tied), min(tied) * (1 + tie), color=ROLES["good"], alpha=canvas.WASH, linewidth=0, zorder=-1)
    at = limit_of(points)
    if at is None:
        return
    end = up.high if points[0].case["metric.higher_is_better"] is False else up.low
    axes.axhspan(min(at, end), max(at, end), color=ROLES["bad"], alpha=canvas.WASH, linewidth=0, zorder=-1)
    axes.axhline(at, color=ROLES["bad"], linewidth=1.2, linestyle=(0, (3, 1.5)), zorder=1)


def _draw_point(axes: Any, point: Point, across: Axis, up: Axis) -> None:
    x, y = across.clip(point.time.value), up.clip(point.change.value)
    color = canvas.color_of(point.case.backend)
    line = {"color": color, "linewidth": 0.8, "zorder": 3}
    if point.time.low is not None and point.time.high is not None:
        axes.plot([max(point.time.low, across.low), min(point.time.high, across.high)], [y, y], **line)
    if point.change.low is not None and point.change.high is not None:
        axes.plot([x, x], [max(point.change.low, up.low), min(point.change.high, up.high)], **line)
    if (arrow := _point_beyond(point, across, up)) is not None:
        axes.plot([x], [y], marker=arrow, markersize=_MARK, color=color, markeredgecolor=ROLES["ink"], zorder=5)
        return
    size = _MARK if point.case.role or point.case["decision.is_best_fp32"] else _MARK - 1
    axes.plot([x], [y], markersize=size, zorder=5, **canvas.mark_style(point.case.mode, point.case.backend))
    if point.case.role in RINGED:
        rows.draw_ring(axes, x, y)


def _point_beyond(point: Point, across: Axis, up: Axis) -> str | None:
    """The arrow that stands for a point off the scale."""
    aside, above = across.side_of(point.time.value), up.side_of(point.change.value)
    if aside:
        return ">" if aside > 0 else "<"
    if not above:
        return None
    return "^" if (above > 0) != (point.case["metric.higher_is_better"] is False) else "v"


def _draw_faint(axes: Any, point: Point, across: Axis, up: Axis) -> None:
    """One of many that have neither a name nor bars."""
    style = canvas.mark_style(point.case.mode, point.case.backend) | {"markeredgewidth": 0.4}
    style |= {"marker": _point_beyond(point, across, up) or style["marker"]}
    axes.plot([across.clip(point.time.value)], [up.clip(point.change.value)], markersize=4, zorder=2.5, **style)


def _write_labels(axes: Any, layout: _Layout) -> None:
    """The names of the points as far as there is room, and of the limit."""
    for point, at, placed in zip(layout.chosen, layout.centers, layout.labels, strict=True):
        if placed is None:
            continue
        if placed.leader is not None:
            line = {"color": ROLES["muted"], "linewidth": 0.7, "zorder": 4, "clip_on": False}
            ends = [(x / _WIDE, y / _PANEL) for x, y in (at, placed.leader)]
            axes.plot(*zip(*ends, strict=True), transform=axes.transAxes, **line)
        rim = {"facecolor": ROLES["card"], "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
        weight = "bold" if _is_named(point) else "normal"
        _write(axes, placed.box, _label(point, layout.across, layout.up), color=ROLES["ink"], weight=weight, bbox=rim)
    if layout.limit is not None:
        text, box = layout.limit
        _write(axes, box, text, color=ROLES["bad"])


def _write(axes: Any, box: Box, text: str, **style: Any) -> None:
    at = (box[0] / _WIDE, (box[1] + 2.5) / _PANEL)
    axes.text(*at, text, transform=axes.transAxes, fontsize=SIZE, zorder=7, **style)


def _label(point: Point, across: Axis, up: Axis) -> str:
    text = canvas.fit_text(point.case.variant, 170, SIZE)
    beyond = []
    if across.side_of(point.time.value):
        beyond.append(f"{point.time.value:.2g}\N{MULTIPLICATION SIGN}")
    if up.side_of(point.change.value):
        beyond.append(minus(f"{point.change.value:+.1f}"))
    return f"{text} ({', '.join(beyond)})" if beyond else text


def _box_around(at: tuple[float, float], reach: float) -> Box:
    return at[0] - reach, at[1] - reach, at[0] + reach, at[1] + reach
