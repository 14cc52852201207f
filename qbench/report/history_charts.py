"""A quantity over the runs of a machine as inline SVG: a row for each case, with its name and values; pure.

Drawn by hand: the drawing is as narrow as a phone, so that its letters are as large there as on a desk, and its colours
are the page's own. Times of cases differ by orders of magnitude: each row begins at its own level, all rows have one
scale, so that a step of 5 % is as high in each.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from qbench import formatting
from qbench.decide import cases
from qbench.report import palette
from qbench.report.history import HistoryLine, Panel, Quantity

WIDTH = 340
MOST_LINES = 15
_SIDE = 66  # to the left for the first level, to the right for the latest value
_TOP, _BOTTOM = 20, 26
_ROW, _DRAWN = 58, 30  # a row with its name, and what is drawn of it
_LETTER = 13  # px; on a phone of 380 px the drawing is a little smaller, and they are still 12
_LETTERS = 44  # of a name
_DOTTED = 60  # runs; of more the points are not marked
_LEAST = math.log(1.02)  # a row is at least so high, so that noise does not look like a change


def draw(panel: Panel, quantity: Quantity) -> str:
    """The chart of one quantity; empty where fewer than two runs have it."""
    lines = list_lines(panel, quantity)
    if not lines or len(panel.runs) < 2:
        return ""
    height = _TOP + _ROW * len(lines) + _BOTTOM
    elements = [*_frame(panel, height), *_marks(panel, height)]
    span = find_span(lines)
    for number, (line, name) in enumerate(zip(lines, name_lines(lines), strict=True)):
        elements += _row(panel, line, name, top=_TOP + _ROW * number, span=span)
    title = f"{quantity.title} over {len(panel.runs)} runs"
    return (
        f'<svg class="history" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{html.escape(title)}">'
        f"{''.join(elements)}</svg>"
    )


def list_lines(panel: Panel, quantity: Quantity) -> list[HistoryLine]:
    """At most ``MOST_LINES`` of a quantity: those that changed first, then those that moved most."""

    def weight(line: HistoryLine) -> tuple[bool, float, str]:
        return not line.changes, -abs(math.log(line.latest / line.first)), line.record.case.id

    return sorted((line for line in panel.series if line.quantity is quantity), key=weight)[:MOST_LINES]


def find_span(lines: Sequence[HistoryLine]) -> float:
    """The logarithm that every row is high."""
    ends = [_ends(line) for line in lines]
    return max(_LEAST, *(high - low for low, high in ends))


def name_lines(lines: Sequence[HistoryLine]) -> list[str]:
    """The model and variant of each, with threads and batch size where several have one name."""
    counts = Counter((line.record.case.model, cases.variant(line.record)) for line in lines)
    names = []
    for line in lines:
        case, variant = line.record.case, cases.variant(line.record)
        end = f" t{case.threads}/b{case.batch_size}" if counts[case.model, variant] > 1 else ""
        end = f" {formatting.shorten(variant, _LETTERS * 2 // 3)}{end}"
        names.append(formatting.shorten(case.model, _LETTERS - len(end)) + end)
    return names


def _ends(line: HistoryLine) -> tuple[float, float]:
    logs = [math.log(ratio) for ratio in line.ratios if ratio is not None]
    return min(0.0, *logs), max(0.0, *logs)


def _x(panel: Panel, position: float) -> float:
    """The middle of a run."""
    return _SIDE + (WIDTH - 2 * _SIDE) * (position + 0.5) / len(panel.runs)


def _frame(panel: Panel, height: float) -> Iterator[str]:
    low = height - _BOTTOM
    first, last = panel.runs[0].day[:16], panel.runs[-1].day[:16]
    yield _text(0, height - 6, first)
    if last != first:
        yield _text(WIDTH, height - 6, last, anchor="end")
    for position in range(len(panel.runs) if len(panel.runs) <= _DOTTED else 0):
        x = _x(panel, position)
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low}" y2="{low + 4}" stroke="var(--muted)"/>'


def _marks(panel: Panel, height: float) -> Iterator[str]:
    """Changes of the environment, numbered as in the list beside the chart."""
    last = -math.inf
    for mark in panel.marks:
        x = _x(panel, mark.position - 0.5)
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 4}" y2="{height - _BOTTOM}" stroke="var(--muted)" '
            'stroke-width="0.9" stroke-dasharray="3 3"/>'
        )
        if x - last > 18:
            yield _text(x, _TOP - 8, f"{mark.number}", anchor="middle")
            last = x


def _row(panel: Panel, line: HistoryLine, name: str, *, top: float, span: float) -> Iterator[str]:
    low, high = _ends(line)
    middle, center = (low + high) / 2, top + _ROW - _DRAWN / 2 - 4

    def y(ratio: float) -> float:
        return center - (math.log(ratio) - middle) / span * _DRAWN

    write = line.quantity.write
    level, latest = y(1.0), y(line.latest / line.first)
    end = WIDTH - _SIDE
    yield f'<line x1="{_SIDE}" x2="{end}" y1="{level:.1f}" y2="{level:.1f}" stroke="var(--grid)" stroke-width="1"/>'
    yield from _line(panel, line, [None if ratio is None else y(ratio) for ratio in line.ratios])
    yield _text(0, top + 14, name, color="var(--ink)", halo=True, told=line.record.case.id)
    yield _text(_SIDE - 5, level + 4, write(line.first), anchor="end")
    yield _text(end + 5, latest + 4, write(line.latest), color="var(--ink)")


def _line(panel: Panel, line: HistoryLine, heights: Sequence[float | None]) -> Iterator[str]:
    color = palette.variable_of(line.record.case.backend)
    strength = "2.4" if line.changes else "1.2"
    for piece in _pieces(panel, heights):
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in piece)
        yield f'<polyline points="{drawn}" fill="none" stroke="{color}" stroke-width="{strength}"/>'
    for position, (value, y) in enumerate(zip(line.values, heights, strict=True)):
        if value is None or y is None:
            continue
        x = _x(panel, position)
        if len(heights) <= _DOTTED or position in line.changes:
            told = html.escape(formatting.clean(f"{panel.runs[position].day}: {line.quantity.write(value)}"))
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{color}"><title>{told}</title></circle>'
        if position in line.changes:
            ring = 'fill="none" stroke="var(--ink)" stroke-width="1.6"'
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {ring}/>'


def _pieces(panel: Panel, heights: Sequence[float | None]) -> Iterator[list[tuple[float, float]]]:
    """The line between its gaps: a run without the case is no point."""
    piece: list[tuple[float, float]] = []
    for position, y in enumerate((*heights, None)):
        if y is not None:
            piece.append((_x(panel, position), y))
        elif piece:
            yield piece
            piece = []


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    color: str = "var(--muted)",
    halo: bool = False,
    told: str = "",
) -> str:
    edge = ' stroke="var(--card)" stroke-width="3" paint-order="stroke"' if halo else ""
    title = f"<title>{html.escape(formatting.clean(told))}</title>" if told else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{_LETTER}" text-anchor="{anchor}" fill="{color}"{edge}>'
        f"{title}{html.escape(formatting.clean(words))}</text>"
    )
