"""What colours and markers mean: a colour for each backend, a marker for each mode, a ring for what is shipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qbench.report import palette
from qbench.report.plots import canvas, rows
from qbench.report.plots.canvas import LINE, ROLES, SIZE
from qbench.report.plots.cases import RINGED, FrameCase

_SWATCH, _BETWEEN = 14.0, 12.0


@dataclass(frozen=True, kw_only=True)
class Item:
    """A sign with its word, at a place in points from the upper left corner."""

    word: str
    kind: str
    x: float
    line: int


@dataclass(frozen=True, kw_only=True)
class Legend:
    """The items on as many lines as they need."""

    items: tuple[Item, ...]
    width: float

    @property
    def height(self) -> float:
        """In points."""
        return LINE * (1 + max((item.line for item in self.items), default=0)) + 4


def arrange(cases: Sequence[FrameCase], width: float) -> Legend:
    """The backends and modes of the cases, and a ring where one is shipped, set like words of a text."""
    backends = sorted({case.backend for case in cases}, key=_order(palette.BACKENDS))
    modes = sorted({case.mode for case in cases}, key=_order(palette.MARKERS))
    signs = [("backend", name) for name in backends], [("mode", name) for name in modes]
    if any(case.role in RINGED for case in cases):
        signs[1].append(("ring", "to ship"))
    items: list[Item] = []
    line = 0
    for group in signs:
        x = 0.0
        for kind, name in group:
            word = canvas.fit_text(name, 120, SIZE)
            needed = _SWATCH + canvas.text_width(word, SIZE)
            if x and x + needed > width:
                line, x = line + 1, 0.0
            items.append(Item(word=name, kind=kind, x=x, line=line))
            x += needed + _BETWEEN
        line += 1
    return Legend(items=tuple(items), width=width)


def draw(axes: Any, legend: Legend) -> None:
    """Draws it over the whole of the axes."""
    axes.set_axis_off()
    axes.set_xlim(0, legend.width)
    axes.set_ylim(legend.height, 0)
    for item in legend.items:
        y = LINE * (item.line + 0.5) + 2
        if item.kind == "backend":
            color = canvas.color_of(item.word)
            axes.plot([item.x, item.x + 10], [y, y], color=color, linewidth=5, solid_capstyle="butt")
        elif item.kind == "ring":
            rows.draw_ring(axes, item.x + 5, y, 3.0)
        else:
            style = canvas.mark_style(item.word, "") | {"markeredgecolor": ROLES["ink"], "markeredgewidth": 1.0}
            if item.word != "fp32":
                style["markerfacecolor"] = ROLES["muted"]
            axes.plot([item.x + 5], [y], markersize=7, **style)
        word = canvas.fit_text(item.word, 120, SIZE)
        axes.text(item.x + _SWATCH, y + 4, word, fontsize=SIZE, color=ROLES["muted"], va="baseline")


def _order(order: dict[str, Any]) -> Any:
    names = list(order)
    return lambda name: (names.index(name) if name in names else len(names), name)
