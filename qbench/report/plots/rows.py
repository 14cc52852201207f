"""Pictures made of rows: a label and its number on a line, and below it what is drawn on a common scale.

Words that belong to a place on the scale (``Flag``) stand above the first row, so that no line goes through a label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from qbench.formatting import one_line
from qbench.report.plots import canvas
from qbench.report.plots.canvas import LINE, ROLES, SIZE, WIDTH, Role
from qbench.report.plots.cases import RINGED, FrameCase, list_settings
from qbench.report.plots.scale import Axis

_DRAWN, _GAP, _HEADING = 14.0, 5.0, 20.0  # what is drawn below the words of a row; between rows; a group's heading
_SIDE, _TOP, _BOTTOM = 4.0, 3.0, 40.0


@dataclass(frozen=True, kw_only=True)
class PictureRow:
    """One case: its label, its number as text, and how it is marked: ``ship`` and the like, or empty."""

    key: str
    label: str
    text: str
    mode: str
    backend: str
    role: str = ""


@dataclass(frozen=True, kw_only=True)
class RowGroup:
    """The rows under one heading; no heading where it is empty."""

    heading: str
    rows: Sequence[PictureRow]


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A line through what is drawn in every row, with words at its top."""

    at: float
    text: str
    role: Role = "muted"
    dashed: bool = False


Draw = Callable[[Any, float, PictureRow], None]


def draw_rows(groups: Sequence[RowGroup], scale: Axis, title: str, draw: Draw, flags: Sequence[Flag] = ()) -> Any:
    """A figure with the rows from the top down; ``draw(axes, y, row)`` draws a row around the height ``y``, within 7
    points to either side."""
    with canvas.settings():
        flagged = _arrange_flags(flags, scale)
        strip = LINE * (1 + max((line for *_, line in flagged), default=-1)) + (3 if flagged else 0)
        body = sum((_HEADING if group.heading else 0) + len(group.rows) * (LINE + _DRAWN + _GAP) for group in groups)
        body = max(body, LINE)
        figure = canvas.new_figure(_TOP + strip + body + _BOTTOM)
        axes = canvas.add_axes(figure, _SIDE, _BOTTOM, WIDTH - 2 * _SIDE, strip + body)
        axes.set_ylim(0, strip + body)
        scale.apply(axes, title)
        _style(axes)
        _write_flags(axes, flagged, strip + body)
        heights = _place_rows(axes, groups, body)
        _draw_ground(axes, [y for y, _ in heights], scale, flags)
        for y, row in heights:
            draw(axes, y, row)
    return figure


def group_rows(
    cases: Sequence[FrameCase], text: Callable[[FrameCase], str]
) -> tuple[list[RowGroup], dict[str, FrameCase]]:
    """The cases as rows under the heading of their setting, and the case of each row."""
    by_row = {f"{number}": case for number, case in enumerate(cases)}
    groups = []
    for name in list_settings(cases):
        of_setting = [
            PictureRow(
                key=key, label=case.variant, text=text(case), mode=case.mode, backend=case.backend, role=case.role
            )
            for key, case in by_row.items()
            if case.setting == name
        ]
        groups.append(RowGroup(heading=name, rows=of_setting))
    return groups, by_row


def draw_mark(axes: Any, x: float, y: float, row: PictureRow, scale: Axis, size: float = 8.0) -> None:
    """The mark of a case at ``x``, with a ring where it is to be shipped; at the edge, as an arrow, where it is off the
    scale."""
    side = scale.side_of(x)
    if side:
        arrow = {"marker": "<" if side < 0 else ">", "markersize": size, "color": canvas.color_of(row.backend)}
        axes.plot([scale.clip(x)], [y], markeredgecolor=ROLES["ink"], markeredgewidth=0.7, zorder=5, **arrow)
        return
    axes.plot([x], [y], markersize=size, zorder=5, **canvas.mark_style(row.mode, row.backend))
    if row.role in RINGED:
        draw_ring(axes, x, y, size)


def bar_style(row: PictureRow) -> dict[str, Any]:
    """How the bar of a case is drawn: hollow for fp32, filled with an edge for int8."""
    color = canvas.color_of(row.backend)
    if row.mode == "fp32":
        return {"facecolor": "none", "edgecolor": color, "linewidth": 1.6}
    return {"facecolor": color, "edgecolor": ROLES["ink"], "linewidth": 0.6}


def draw_ring(axes: Any, x: float, y: float, size: float = 8.0) -> None:
    """The ring around what is to be shipped."""
    ring = {"markerfacecolor": "none", "markeredgecolor": ROLES["ink"], "markeredgewidth": 1.6}
    axes.plot([x], [y], marker="o", markersize=size + 6, linestyle="none", zorder=6, **ring)


def draw_interval(
    axes: Any, low: float | None, high: float | None, y: float, row: PictureRow, scale: Axis, *, width: float = 2.2
) -> None:
    """A line between two limits, with an arrow where it goes on beyond the scale."""
    if low is None or high is None:
        return
    ends = scale.clip(low), scale.clip(high)
    color = canvas.color_of(row.backend)
    axes.plot(ends, [y, y], color=color, linewidth=width, solid_capstyle="butt", zorder=3)
    for limit, end, marker in ((low, ends[0], "<"), (high, ends[1], ">")):
        if scale.side_of(limit):
            axes.plot([end], [y], marker=marker, markersize=5, color=color, linestyle="none", zorder=3)


def _style(axes: Any) -> None:
    axes.set_yticks([])
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(ROLES["grid"])
    axes.tick_params(axis="x", color=ROLES["grid"], labelcolor=ROLES["muted"], length=3, labelsize=SIZE)
    axes.xaxis.label.set_color(ROLES["muted"])
    axes.xaxis.label.set_size(SIZE)


def _arrange_flags(flags: Sequence[Flag], scale: Axis) -> list[tuple[Flag, float, float, int]]:
    """Each flag with the left end of its words, its own place, and the line that it stands on: as few lines as hold
    them without meeting."""
    lines: list[list[tuple[float, float]]] = []
    arranged = []
    for flag in sorted(flags, key=lambda flag: flag.at):
        at = scale.fraction(flag.at) * (WIDTH - 2 * _SIDE)
        wide = canvas.text_width(flag.text, SIZE)
        left = min(max(0.0, at - wide / 2), WIDTH - 2 * _SIDE - wide)
        line = 0
        while line < len(lines) and any(left < end + 8 and start < left + wide + 8 for start, end in lines[line]):
            line += 1
        if line == len(lines):
            lines.append([])
        lines[line].append((left, left + wide))
        arranged.append((flag, left, at, line))
    return arranged


def _write_flags(axes: Any, flagged: Sequence[tuple[Flag, float, float, int]], top: float) -> None:
    across = WIDTH - 2 * _SIDE
    for flag, left, _, line in flagged:
        y = top - LINE * (line + 1) + 4
        anchor = {"transform": axes.get_yaxis_transform(), "va": "baseline", "ha": "left"}
        axes.text(left / across, y, one_line(flag.text), color=ROLES[flag.role], fontsize=SIZE, **anchor)


def _place_rows(axes: Any, groups: Sequence[RowGroup], body: float) -> list[tuple[float, PictureRow]]:
    """Writes headings, labels and numbers; gives the height at which each row is drawn."""
    heights = []
    y = body
    room = WIDTH - 2 * _SIDE
    for group in groups:
        if group.heading:
            y -= _HEADING
            _write(axes, 0, y + 5, canvas.fit_text(group.heading, room, bold=True), weight="bold", color=ROLES["ink"])
        for row in group.rows:
            y -= LINE
            number = one_line(row.text)
            left = room - canvas.text_width(number) - 10
            _write(axes, 0, y + 3, canvas.fit_text(row.label, left), color=ROLES["ink"])
            _write(axes, 1, y + 3, number, ha="right", color=ROLES["muted"])
            y -= _DRAWN
            heights.append((y + _DRAWN / 2, row))
            y -= _GAP
    return heights


def _write(axes: Any, x: float, y: float, text: str, **style: Any) -> None:
    plain = {"transform": axes.get_yaxis_transform(), "va": "baseline", "clip_on": False, "fontsize": SIZE}
    axes.text(x, y, text, **(plain | style))


def _draw_ground(axes: Any, rows: Sequence[float], scale: Axis, flags: Sequence[Flag]) -> None:
    """The grid and the flags' lines behind what is drawn in the rows, not behind their words."""
    from matplotlib.collections import LineCollection

    spans = [(y - _DRAWN / 2 - 1, y + _DRAWN / 2 - 1) for y in rows]

    def draw_upright(lines_at: Sequence[float], **style: Any) -> None:
        lines = [((x, low), (x, high)) for x in lines_at for low, high in spans]
        axes.add_collection(LineCollection(lines, **style))

    draw_upright(scale.ticks, color=ROLES["grid"], linewidth=0.7, zorder=0)
    for flag in flags:
        style = {"linestyle": (0, (3, 1.5))} if flag.dashed else {}
        if math.isfinite(flag.at) and not scale.side_of(flag.at):
            draw_upright([flag.at], color=ROLES[flag.role], linewidth=1.4, zorder=1, **style)
