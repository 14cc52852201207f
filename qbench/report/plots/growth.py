"""How throughput grows with threads and with the batch size, beside the line of an ideal machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from qbench import formatting
from qbench.progress.table import TextTable
from qbench.report.plots import canvas, legend, scale
from qbench.report.plots.canvas import ROLES, SIZE, WIDTH
from qbench.report.plots.cases import MOST, FrameCase, measured_cases, nothing_to_draw, require_name
from qbench.report.plots.picture import Drawing, name_case, plural

if TYPE_CHECKING:
    import pandas as pd

By = Literal["threads", "batch_size"]
_LEFT, _RIGHT, _HEAD, _FOOT, _PANEL = 40.0, 10.0, 40.0, 38.0, 190.0
_MOST_PANELS = 4
WORDS: dict[By, str] = {"threads": "threads", "batch_size": "batch size"}
HEADINGS: dict[By, str] = {"threads": "More threads", "batch_size": "Larger batches"}


@dataclass(frozen=True, kw_only=True)
class GrowthLine:
    """One variant at several numbers of threads or batch sizes: throughput over that at the smallest."""

    case: FrameCase
    panel: str
    at: tuple[int, ...]
    gain: tuple[float, ...]


def scaling(frame: pd.DataFrame, by: By = "threads") -> Any:
    """A matplotlib figure of a frame of cases: throughput of each variant over that at the fewest threads (or the
    smallest batch). Raises ``UsageError`` where there is but one number of them."""
    require_name("scaling", by, WORDS)
    lines, _ = list_lines(measured_cases(frame), by)
    if not lines:
        raise nothing_to_draw("scaling", f"no variant of the frame was measured with several values of {by}")
    panels = list(dict.fromkeys(line.panel for line in lines))
    with canvas.settings():
        key = legend.arrange([line.case for line in lines], WIDTH - 8)
        each = _HEAD + _PANEL + _FOOT
        figure = canvas.new_figure(each * len(panels) + key.height + 4)
        for number, panel in enumerate(panels):
            bottom = key.height + 4 + each * (len(panels) - 1 - number) + _FOOT
            axes = canvas.add_axes(figure, _LEFT, bottom, WIDTH - _LEFT - _RIGHT, _PANEL)
            _draw_panel(axes, panel, [line for line in lines if line.panel == panel], by)
        legend.draw(canvas.add_axes(figure, 4, 0, WIDTH - 8, key.height), key)
    return figure


def list_drawings(frame: pd.DataFrame, cases: Sequence[FrameCase]) -> Iterator[Drawing]:
    """A picture for threads and one for batch sizes, where variants were measured with several."""
    for by in WORDS:
        lines, more = list_lines(cases, by)
        if lines:
            yield Drawing(
                key=f"scaling-{by.replace('_', '-')}",
                heading=HEADINGS[by],
                draw=partial(scaling, frame, by),
                caption=_conclude(lines, by),
                data=_tabulate(lines, by),
                more=more,
            )


def _conclude(lines: Sequence[GrowthLine], by: By) -> str:
    """How much of the ideal is reached at the most threads."""
    reached = [(line.gain[-1] / (line.at[-1] / line.at[0]), line) for line in lines]
    share, best = max(reached, key=lambda pair: pair[0])
    last = min(reached, key=lambda pair: pair[0])[1]
    ends = f"{best.at[0]} to {best.at[-1]}"
    span = f"{ends} threads" if by == "threads" else f"batch size {ends}"
    first = (
        f"From {span}, {name_case(best.case)} gains most: {best.gain[-1]:.2f} times as "
        f"many examples a second, {formatting.fixed(share * 100, 0)} % of the ideal"
    )
    rest = ""
    if last is not best:
        rest = f"; {name_case(last.case)} gains least, {last.gain[-1]:.2f} times"
    return f"{first}{rest}. Shown are n = {plural(len(lines), 'variant')}; medians, without intervals."


def _tabulate(lines: Sequence[GrowthLine], by: By) -> TextTable:
    """The gain of each variant."""
    rows = [
        (
            line.case.variant,
            line.panel,
            "; ".join(f"{at}: {gain:.2f}" for at, gain in zip(line.at, line.gain, strict=True)),
        )
        for line in lines
    ]
    titles = ("variant", "setting", f"examples a second by {WORDS[by]}, over the first")
    return TextTable(columns=titles, rows=tuple(rows), words=(0, 1, 2))


def list_lines(cases: Sequence[FrameCase], by: By) -> tuple[list[GrowthLine], int]:
    """The variants that were measured at several, at most ``MOST`` in at most four panels, those that a decision names
    first; and how many are left out."""
    by_the_other: By = "batch_size" if by == "threads" else "threads"
    by_line: dict[tuple[str, str, int], dict[int, tuple[FrameCase, float]]] = {}
    for case in cases:
        if rate := case.number("throughput_per_second"):
            model = case.setting.replace(str(case["case.setting"]), str(case["case.model"]), 1)
            name = (model, case.variant, int(case.number(f"case.{by_the_other}") or 1))
            by_line.setdefault(name, {})[int(case.number(f"case.{by}") or 1)] = case, rate
    lines = []
    for (model, _, fixed), by_count in by_line.items():
        if len(by_count) > 1:
            counts = tuple(sorted(by_count))
            first, least = by_count[counts[0]]
            named = next((case for case, _ in by_count.values() if case.role), first)
            words = f"batch {fixed}" if by_the_other == "batch_size" else f"{fixed} thread{'s' if fixed > 1 else ''}"
            gain = tuple(by_count[count][1] / least for count in counts)
            lines.append(GrowthLine(case=named, panel=f"{model}, {words}", at=counts, gain=gain))
    panels = list(dict.fromkeys(line.panel for line in lines))[:_MOST_PANELS]
    drawable = [line for line in lines if line.panel in panels]
    drawable.sort(
        key=lambda line: (not line.case.role, line.case.is_contender and not line.case.role, line.case.seconds)
    )
    drawn = drawable[:MOST]
    return [line for panel in panels for line in drawn if line.panel == panel], len(lines) - len(drawn)


def _draw_panel(axes: Any, panel: str, lines: Sequence[GrowthLine], by: By) -> None:
    counts = sorted({count for line in lines for count in line.at})
    gains = [gain for line in lines for gain in line.gain]
    ideal = [count / counts[0] for count in counts]
    across = scale.Axis(
        low=counts[0] / 1.12, high=counts[-1] * 1.12, log=True, ticks=tuple(counts), words=lambda count: f"{count:g}"
    )
    up = scale.logarithmic([*gains, *ideal], (), (*gains, *ideal), words=scale.times)
    across.apply(axes, f"{WORDS[by]} (log)")
    up.apply(axes, "", "y")
    canvas.style_axes(axes)
    axes.plot(counts, ideal, color=ROLES["muted"], linewidth=1.2, linestyle=(0, (4, 2)), zorder=1)
    axes.text(
        0.02, 0.97, "- - ideal: in proportion", transform=axes.transAxes, va="top", fontsize=SIZE, color=ROLES["muted"]
    )
    for line in lines:
        color = canvas.color_of(line.case.backend)
        axes.plot(line.at, line.gain, color=color, linewidth=2.2 if line.case.role else 1.2, zorder=3)
        style = canvas.mark_style(line.case.mode, line.case.backend)
        axes.plot(line.at, line.gain, markersize=7, zorder=4, **style)
    across_up = -(_LEFT - 4) / (WIDTH - _LEFT - _RIGHT)
    title = canvas.fit_text(panel, WIDTH - 8, SIZE, bold=True)
    axes.text(
        across_up, 1 + 23 / _PANEL, title, transform=axes.transAxes, fontsize=SIZE, weight="bold", color=ROLES["ink"]
    )
    heading = f"examples a second, over those with {counts[0]}"
    axes.text(across_up, 1 + 8 / _PANEL, heading, transform=axes.transAxes, fontsize=SIZE, color=ROLES["muted"])
