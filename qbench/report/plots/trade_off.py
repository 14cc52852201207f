"""The trade-off: time over the fastest fp32 against the change of accuracy, one panel a setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from qbench.report.plots import canvas, legend, rows
from qbench.report.plots.canvas import ROLES, SIZE
from qbench.report.plots.cases import RINGED, FrameCase, list_settings, measured_cases, nothing_to_draw
from qbench.report.plots.labels import Box
from qbench.report.plots.picture import Drawing
from qbench.report.plots.scale import Axis
from qbench.report.plots.trade_off_layout import (
    DESK,
    LEFT,
    PHONE,
    Format,
    Layout,
    Spot,
    arrange,
    is_named,
    label_of,
)
from qbench.report.plots.trade_off_points import (
    Point,
    conclude_trade_off,
    find_front,
    is_absolute,
    limit_of,
    list_points,
    tabulate_points,
    tell_point,
)

if TYPE_CHECKING:
    import pandas as pd

KEY = "pareto"  # what the keys of its pictures begin with
MOST_SETTINGS = 6  # that are shown, one picture a setting
_HEAD, _FOOT = 24.0, 38.0
_MARK = 8.0


def pareto(frame: pd.DataFrame, *, narrow: bool = False) -> Any:
    """A matplotlib figure of a frame of cases (``qbench.load``): up is more accurate, left is faster. ``narrow``: for a
    phone. Raises ``UsageError`` where no case has both a time and a change."""
    cases = measured_cases(frame)
    panels = [(name, points) for name in list_settings(cases) if (points := list_points(cases, name))]
    if not panels:
        raise nothing_to_draw("pareto", "no case of the frame has both a time and a change of accuracy")
    form = PHONE if narrow else DESK
    return _draw([(name, points, arrange(points, form)) for name, points in panels], form)


def _draw(panels: Sequence[tuple[str, Sequence[Point], Layout]], form: Format) -> Any:
    """A figure of a panel for each setting: its name, its points and how they lie."""
    cases_of_points = [point.case for _, points, _ in panels for point in points]
    with canvas.settings():
        key = legend.arrange(cases_of_points, form.width - 8)
        each = _HEAD + form.height + _FOOT + (18 if len(panels) > 1 else 0)
        figure = canvas.new_figure(each * len(panels) + key.height + 4, form.width)
        for number, (name, points, layout) in enumerate(panels):
            bottom = key.height + 4 + each * (len(panels) - 1 - number) + _FOOT
            axes = canvas.add_axes(figure, LEFT, bottom, form.across, form.height)
            _draw_panel(axes, name if len(panels) > 1 else "", points, layout)
        legend.draw(canvas.add_axes(figure, 4, 0, form.width - 8, key.height), key)
    return figure


def list_drawings(frame: pd.DataFrame, cases: Sequence[FrameCase]) -> Iterator[Drawing]:
    """A picture for each of the first settings."""
    settings = [name for name in list_settings(cases) if len(list_points(cases, name)) > 1]
    for number, name in enumerate(settings[:MOST_SETTINGS], start=1):
        points = list_points(cases, name)
        desk, phone = (arrange(points, form) for form in (DESK, PHONE))
        yield Drawing(
            key=KEY if number == 1 else f"{KEY}-{number}",
            heading=f"Time against accuracy: {name}" if len(settings) > 1 else "Time against accuracy",
            draw=partial(_draw, [(name, points, desk)], DESK),
            draw_narrow=partial(_draw, [(name, points, phone)], PHONE),
            caption=conclude_trade_off(points),
            data=tabulate_points(desk.chosen),
            more=len(desk.rest),
            unnamed=desk.unnamed,
            unnamed_narrow=phone.unnamed,
        )


# --- the panel ------------------------------------------------------------------------------------------------------


def _draw_panel(axes: Any, heading: str, points: Sequence[Point], layout: Layout) -> None:
    across, up = layout.across, layout.up
    across.apply(axes, "time over fastest fp32 (log) · left is faster")
    up.apply(axes, "", "y")
    if layout.upside_down:
        axes.invert_yaxis()
    _style(axes, points, heading, layout.format)
    _shade(axes, points, across, up)
    front = find_front(points)
    steps = [(across.clip(point.time.value), up.clip(point.change.value)) for point in front]
    if len(steps) > 1:
        axes.step(*zip(*steps, strict=True), where="post", color=ROLES["muted"], linewidth=1.3, zorder=2)
    spots = list(zip([*layout.chosen, *layout.rest], layout.spots, strict=True))
    for point, spot in spots[len(layout.chosen) :]:
        _draw_small(axes, point, spot, across, up)
    for point, spot in reversed(spots[: len(layout.chosen)]):  # what matters most lies on top
        _draw_point(axes, point, spot, across, up)
    _write_labels(axes, layout)


def _style(axes: Any, points: Sequence[Point], heading: str, form: Format) -> None:
    canvas.style_axes(axes)
    if heading:
        at = (-(LEFT - 4) / form.across, 1 + 24 / form.height)
        text = canvas.fit_text(heading, form.width - 8, SIZE, bold=True)
        axes.text(*at, text, transform=axes.transAxes, color=ROLES["ink"], fontsize=SIZE, weight="bold")
    case = points[0].case
    unit = f", {case['metric.unit']}" if case["metric.unit"] else ""
    title = f"{'' if is_absolute(points) else 'change of '}{case['accuracy.metric']}{unit} · up is better"
    at = (-(LEFT - 4) / form.across, 1 + 8 / form.height)
    text = canvas.fit_text(title, form.width - 8, SIZE)
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
    upside_down = points[0].case["metric.higher_is_better"] is False
    end = max(up.high, at) if upside_down else min(up.low, at)
    axes.axhspan(min(at, end), max(at, end), color=ROLES["bad"], alpha=canvas.WASH, linewidth=0, zorder=-1)
    axes.axhline(at, color=ROLES["bad"], linewidth=1.2, linestyle=(0, (3, 1.5)), zorder=1)


def _draw_point(axes: Any, point: Point, spot: Spot, across: Axis, up: Axis) -> None:
    x, y = spot
    line = {"color": canvas.color_of(point.case.backend), "linewidth": 0.8, "zorder": 3}
    if point.time.low is not None and point.time.high is not None:
        axes.plot([max(point.time.low, across.low), min(point.time.high, across.high)], [y, y], **line)
    if point.change.low is not None and point.change.high is not None:
        axes.plot([x, x], [max(point.change.low, up.low), min(point.change.high, up.high)], **line)
    size = _MARK if point.case.role or point.case["decision.is_best_fp32"] else _MARK - 1
    style = canvas.mark_style(point.case.mode, point.case.backend)
    if (arrow := _point_beyond(point, across, up)) is not None:
        style |= {"marker": arrow}
    elif point.case.role in RINGED:
        rows.draw_ring(axes, x, y)
    axes.plot([x], [y], markersize=size, zorder=5, label=tell_point(point), **style)


def _point_beyond(point: Point, across: Axis, up: Axis) -> str | None:
    """The arrow that stands for a point off the scale."""
    aside, above = across.side_of(point.time.value), up.side_of(point.change.value)
    if aside:
        return ">" if aside > 0 else "<"
    if not above:
        return None
    return "^" if (above > 0) != (point.case["metric.higher_is_better"] is False) else "v"


def _draw_small(axes: Any, point: Point, spot: Spot, across: Axis, up: Axis) -> None:
    """One of many that have neither a name nor bars."""
    style = canvas.mark_style(point.case.mode, point.case.backend) | {
        "markeredgewidth": 0.4 if point.case.is_contender else 1.2
    }
    style |= {"marker": _point_beyond(point, across, up) or style["marker"], "label": tell_point(point)}
    axes.plot([spot[0]], [spot[1]], markersize=4, zorder=2.5, **style)


def _write_labels(axes: Any, layout: Layout) -> None:
    """The names of the points as far as there is room, and of the limit."""
    form = layout.format
    for point, at, placed in zip(layout.chosen, layout.centers, layout.labels, strict=True):
        if placed is None:
            continue
        if placed.leader is not None:
            line = {"color": ROLES["muted"], "linewidth": 0.7, "zorder": 4, "clip_on": False}
            ends = [(x / form.across, y / form.height) for x, y in (at, placed.leader)]
            axes.plot(*zip(*ends, strict=True), transform=axes.transAxes, **line)
        rim = {"facecolor": ROLES["card"], "edgecolor": "none", "alpha": 0.75, "pad": 0.6}
        weight = "bold" if is_named(point) else "normal"
        text = label_of(point, layout.across, layout.up)
        _write(axes, placed.box, text, form, color=ROLES["ink"], weight=weight, bbox=rim, label=tell_point(point))
    if layout.limit is not None:
        text, box = layout.limit
        _write(axes, box, text, form, color=ROLES["bad"])


def _write(axes: Any, box: Box, text: str, form: Format, **style: Any) -> None:
    at = (box[0] / form.across, (box[1] + 2.5) / form.height)
    axes.text(*at, text, transform=axes.transAxes, fontsize=SIZE, zorder=7, **style)
