"""A quantity over the runs of a machine as inline SVG: lines of ratios, changes ringed and named; pure.

Drawn by hand: the drawing is as narrow as a phone, so that its letters are as large there as on a desk, and its colours
are the page's own.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from qbench import formatting
from qbench.decide import cases
from qbench.report import palette
from qbench.report.history import HistoryLine, Panel, Quantity

WIDTH, HEIGHT = 340, 220
MOST_LINES = 15
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 26, 34
_LETTER = 13  # px; on a phone of 380 px the drawing is a little smaller, and they are still 12
_NAMED = 4  # lines that carry their name in the drawing
_TICKS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)


def draw(panel: Panel, quantity: Quantity) -> str:
    """The chart of one quantity; empty where fewer than two runs have it."""
    lines = [line for line in panel.series if line.quantity is quantity]
    drawn = choose_lines(lines)
    if not drawn or len(panel.runs) < 2:
        return ""
    top = max(abs(math.log(ratio)) for line in drawn for ratio in line.ratios if ratio is not None)
    scale = _Scale(runs=len(panel.runs), top=max(top * 1.15, math.log(1.012)))
    elements = [*_frame(panel, scale), *_marks(panel, scale)]
    for line in reversed(drawn):
        elements += _line(line, scale)
    elements += _names([line for line in drawn if line.changes][:_NAMED], scale)
    title = f"{quantity.title}, ratio over {len(panel.runs)} runs"
    return (
        f'<svg class="history" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        f"{''.join(elements)}</svg>"
    )


def choose_lines(lines: Sequence[HistoryLine]) -> list[HistoryLine]:
    """At most ``MOST_LINES``: those that changed first, then those that moved most."""

    def weight(line: HistoryLine) -> tuple[bool, float, str]:
        last = next((ratio for ratio in reversed(line.ratios) if ratio is not None), 1.0)
        return not line.changes, -abs(math.log(last)), line.record.case.id

    return sorted(lines, key=weight)[:MOST_LINES]


class _Scale:
    """Where a run and a ratio lie; ratios on a logarithmic axis around 1."""

    def __init__(self, *, runs: int, top: float) -> None:
        self.runs, self.top = runs, top

    def x(self, position: float) -> float:
        """The middle of a run."""
        wide = WIDTH - _LEFT - _RIGHT
        return _LEFT + wide * (position + 0.5) / self.runs

    def y(self, ratio: float) -> float:
        """A ratio's height."""
        high = (HEIGHT - _TOP - _BOTTOM) / 2
        return _TOP + high - high * math.log(ratio) / self.top


def _frame(panel: Panel, scale: _Scale) -> Iterator[str]:
    ticks = [tick for tick in _TICKS if math.log(tick) <= scale.top][-2:]
    for ratio in sorted({1.0, *ticks, *(1 / tick for tick in ticks)}):
        y = scale.y(ratio)
        weight = 1.2 if ratio == 1.0 else 0.6
        yield (
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="var(--grid)" '
            f'stroke-width="{weight}"/>'
        )
        yield _text(_LEFT - 5, y + 4, _say_ratio(ratio), anchor="end")
    first, last = panel.runs[0].day, panel.runs[-1].day
    yield _text(scale.x(0) - 8, HEIGHT - 8, first[:16])
    if last != first:
        yield _text(scale.x(scale.runs - 1) + 8, HEIGHT - 8, last[:16], anchor="end")
    for position in range(scale.runs):
        if scale.runs <= 60:
            x, low = scale.x(position), HEIGHT - _BOTTOM
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low}" y2="{low + 4}" stroke="var(--muted)"/>'


def _say_ratio(ratio: float) -> str:
    return f"{ratio:.2f}".rstrip("0").rstrip(".") + "\N{MULTIPLICATION SIGN}"


def _marks(panel: Panel, scale: _Scale) -> Iterator[str]:
    """Changes of the environment, numbered as in the list beside the chart."""
    last = -math.inf
    for mark in panel.marks:
        x = scale.x(mark.position - 0.5)
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{HEIGHT - _BOTTOM}" stroke="var(--muted)" '
            'stroke-width="0.9" stroke-dasharray="3 3"/>'
        )
        if x - last > 18:
            yield _text(x, _TOP - 10, f"{mark.number}", anchor="middle")
            last = x


def _line(line: HistoryLine, scale: _Scale) -> Iterator[str]:
    color = palette.variable_of(line.record.case.backend) if line.changes else "var(--muted)"
    strength = "2" if line.changes else "1"
    faint = "" if line.changes else ' stroke-opacity="0.55"'
    for points in _pieces(line, scale):
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        if len(points) == 1:
            (x, y) = points[0]
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.6" fill="{color}"/>'
        else:
            yield f'<polyline points="{drawn}" fill="none" stroke="{color}" stroke-width="{strength}"{faint}/>'
    for position in line.changes:
        ratio = line.ratios[position]
        if ratio is not None:
            yield (
                f'<circle cx="{scale.x(position):.1f}" cy="{scale.y(ratio):.1f}" r="5" fill="none" stroke="var(--ink)" '
                'stroke-width="1.6"/>'
            )


def _pieces(line: HistoryLine, scale: _Scale) -> Iterator[list[tuple[float, float]]]:
    """The line between its gaps: a run without the case is no point."""
    piece: list[tuple[float, float]] = []
    for position, ratio in enumerate(line.ratios):
        if ratio is not None:
            piece.append((scale.x(position), scale.y(ratio)))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _names(lines: Sequence[HistoryLine], scale: _Scale) -> Iterator[str]:
    """The names of lines that changed, at their ends, one above the other where they are near."""
    ends = []
    for line in lines:
        ratio = next((ratio for ratio in reversed(line.ratios) if ratio is not None), None)
        if ratio is not None:
            ends.append((scale.y(ratio), line))
    middle = scale.y(1.0)
    free = _TOP - 2.0
    for y, line in sorted(ends, key=lambda end: end[0]):
        beside = y + 20 if y < middle else y - 10  # on the side of the axis, where other levels are not
        free = max(beside, free + _LETTER)
        name = formatting.shorten(f"{line.record.case.model} {cases.variant(line.record)}", 32)
        yield _text(WIDTH - _RIGHT, min(free, HEIGHT - _BOTTOM - 4), name, anchor="end", color="var(--ink)", halo=True)


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", color: str = "var(--muted)", halo: bool = False
) -> str:
    edge = ' stroke="var(--card)" stroke-width="3" paint-order="stroke"' if halo else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{_LETTER}" text-anchor="{anchor}" fill="{color}"{edge}>'
        f"{html.escape(formatting.clean(words))}</text>"
    )
