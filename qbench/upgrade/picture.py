"""The times of an upgrade as a picture: each case under the new libraries beside the old side, with its interval, the
file that stays and the one that is built anew, and how much slower the suite lets it be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qbench.gating.verdict import Verdict
from qbench.report.plots import canvas
from qbench.report.plots.canvas import ROLES, SIZE, WIDTH, Role
from qbench.stats.interval_type import Interval
from qbench.upgrade.upgrade import KEPT, Upgraded

_LEFT, _RIGHT, _ROW, _HEAD, _FOOT = 84.0, 12.0, 24.0, 8.0, 40.0
_LABELS = {KEPT: "same file"}
_TONES: dict[str, tuple[Role, str]] = {
    "pass": ("good", "circle"),
    "fail": ("bad", "square"),
    "hold": ("unsure", "diamond"),
}
_NOT_JUDGED: tuple[Role, str] = ("ink", "circle")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: a case by its name, without a time, or what one way does to its time. ``verdict``: the gate's on that
    time, if it is one."""

    label: str
    time: Interval | None = None
    verdict: Verdict | None = None


def list_rows(upgraded: Upgraded) -> list[Row]:
    """Each case by its name, and below it the ways whose time is known."""
    rows: list[Row] = []
    for case in dict.fromkeys(change.case for change in upgraded.changes):
        timed = [change for change in upgraded.changes if change.case == case and change.time is not None]
        if not timed:
            continue
        rows.append(Row(label=case))
        rows += [
            Row(
                label=_LABELS.get(change.way, "built anew"),
                time=change.time,
                verdict=next(
                    (
                        each
                        for each in upgraded.gates[change.way].verdicts
                        if each.case == case and each.kind == "time" and each.way == "live"
                    ),
                    None,
                ),
            )
            for change in timed
        ]
    return rows


def draw(rows: list[Row]) -> Any:
    """The matplotlib figure; ``rows`` are not empty."""
    with canvas.settings():
        figure = canvas.new_figure(_HEAD + _ROW * len(rows) + _FOOT)
        axes = canvas.add_axes(figure, _LEFT, _FOOT, WIDTH - _LEFT - _RIGHT, _ROW * len(rows) + _HEAD)
        canvas.style_axes(axes)
        axes.set_ylim(len(rows) - 0.5, -0.5 - _HEAD / _ROW)
        axes.set_yticks([])
        for number, row in enumerate(rows):
            _draw_row(axes, number, row)
        axes.set_xlabel("time, %, beside the old side")
        axes.margins(x=0.08)
    return figure


def _draw_row(axes: Any, number: int, row: Row) -> None:
    if row.time is None:
        label = canvas.fit_text(row.label, WIDTH - _RIGHT - 4, bold=True)
        axes.text(
            4 - _LEFT, number, label, transform=_in_points(axes), va="center", fontsize=SIZE, color=ROLES["ink"],
            weight="bold",
        )  # fmt: skip
        return
    axes.text(
        -8, number, row.label, transform=_in_points(axes), ha="right", va="center", fontsize=SIZE, color=ROLES["ink"]
    )
    reach = (number - 0.42, number + 0.42)
    axes.plot([0, 0], reach, color=ROLES["muted"], linewidth=1, zorder=1)
    role, marker = _NOT_JUDGED
    if row.verdict is not None:
        role, marker = _TONES.get(row.verdict.effect, _NOT_JUDGED)
        if row.verdict.threshold is not None:
            limit = 100 * (row.verdict.threshold - 1)
            axes.plot([limit, limit], reach, color=ROLES["muted"], linewidth=1, linestyle=(0, (3, 3)), zorder=1)
    low, high = row.time.low, row.time.high
    if low is not None and high is not None:
        ends = [100 * (low - 1), 100 * (high - 1)]
        axes.plot(ends, [number, number], color=ROLES[role], linewidth=2, solid_capstyle="butt", zorder=2)
    value = 100 * (row.time.value - 1)
    axes.plot([value], [number], marker=canvas.MARKERS[marker], color=ROLES[role], markersize=7, zorder=3)


def _in_points(axes: Any) -> Any:
    """A transform whose x counts points from the left of the axes, and y rows."""
    from matplotlib.transforms import Affine2D

    across = Affine2D().scale(1 / (WIDTH - _LEFT - _RIGHT), 1)
    return across + axes.get_yaxis_transform()
