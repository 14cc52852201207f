"""Plots as inline SVG: text stays text, colours are the page's own variables, equal data gives equal bytes.

matplotlib draws with a stand-in colour for each role, and the finished SVG has ``var(--role)`` in its place, so
that one drawing serves light and dark pages. No global state is touched: each call draws within its own
``rc_context`` on a bare ``Figure``.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from qbench.formatting import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

Role = Literal["ink", "muted", "grid", "int8", "fp32", "good", "bad", "unsure"]
_ROLES: tuple[Role, ...] = ("ink", "muted", "grid", "int8", "fp32", "good", "bad", "unsure")
_STAND_IN = {role: f"#0101{number:02x}" for number, role in enumerate(_ROLES, start=16)}
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",  # text as text: it can be read aloud, searched and selected
    "svg.hashsalt": "qbench",  # else element ids are random
    "text.parse_math": False,  # a model may be called $x^2$
    "font.size": 9.0,
    "axes.unicode_minus": True,
}
WIDTH = 4.7  # inches at 72 points: on a phone one point is about one pixel
# Letters that fit: a heading has its line alone, a label shares it with its number.
_HEADING_LETTERS, _LABEL_LETTERS = 50, 34
_ROW, _HEAD, _TOP, _BOTTOM = 0.40, 0.34, 0.08, 0.50
# Of a row's height: the baseline of its words, and what is drawn below them (letters reach 0.08 below the baseline).
_BASELINE, _DRAWN = 0.52, 0.43


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One line of a plot: ``label`` and the number as ``text`` above what is drawn at ``value``."""

    label: str
    text: str
    value: float
    low: float | None = None
    high: float | None = None
    role: Role = "int8"
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The marks under one heading."""

    heading: str
    marks: Sequence[Mark]


@dataclass(frozen=True, kw_only=True)
class Words:
    """What a reader who cannot see the plot is told, and the axis's title. ``key`` makes ids unique in a page."""

    key: str
    title: str
    description: str
    axis: str


def intervals(
    groups: Sequence[Group], words: Words, *, reference: float, log: bool, margin: float | None = None
) -> str:
    """An estimate with its limits per mark, and a line at ``reference``; ``margin`` is a second, dashed line."""

    def draw(axes: Any, y: float, mark: Mark) -> None:
        colour = _STAND_IN[mark.role]
        if mark.low is not None and mark.high is not None:
            axes.plot([mark.low, mark.high], [y, y], color=colour, linewidth=2.2, solid_capstyle="round")
        axes.plot([mark.value], [y], marker="o", markersize=5.2, color=colour, linestyle="none")

    def finish(axes: Any, rows: Sequence[float]) -> None:
        _upright(axes, reference, rows, color=_STAND_IN["muted"], linewidth=1.2)
        if margin is not None:
            _upright(axes, margin, rows, color=_STAND_IN["bad"], linewidth=1.4, linestyle=(0, (2, 1.2)))
        shown = [mark for group in groups for mark in group.marks]
        ends = [reference, *([] if margin is None else [margin])]
        ends += [end for mark in shown for end in (mark.value, mark.low, mark.high) if end is not None]
        _limit(axes, ends, log=log)

    return _plot(groups, words, draw, finish)


def bars(groups: Sequence[Group], words: Words) -> str:
    """A bar from zero per mark."""

    def draw(axes: Any, y: float, mark: Mark) -> None:
        axes.barh([y], [mark.value], height=0.22, color=_STAND_IN[mark.role])

    def finish(axes: Any, _: Sequence[float]) -> None:
        largest = max((mark.value for group in groups for mark in group.marks), default=1.0)
        axes.set_xlim(0, (largest or 1.0) * 1.02)

    return _plot(groups, words, draw, finish)


def ridges(groups: Sequence[Group], words: Words, shapes: Callable[[Mark], NDArray[Any]], end: float) -> str:
    """The distribution of ``shapes(mark)`` per mark, from its least value to ``end``, as a filled outline with a
    tick at 1. Each outline has its own height: areas are not compared."""
    import numpy as np

    start = min((float(shapes(mark).min()) for group in groups for mark in group.marks), default=0.9)
    edges = np.linspace(min(start, 0.98), end, 121)

    def draw(axes: Any, y: float, mark: Mark) -> None:
        counts, _ = np.histogram(np.clip(shapes(mark), edges[0], end), bins=edges)
        heights = y - 0.18 + 0.38 * counts / max(1, counts.max())
        colour = _STAND_IN[mark.role]
        axes.stairs(heights, edges, baseline=y - 0.18, fill=True, color=colour, alpha=0.75)
        axes.plot([edges[0], end], [y - 0.18, y - 0.18], color=_STAND_IN["grid"], linewidth=0.8, zorder=0)

    def finish(axes: Any, rows: Sequence[float]) -> None:
        _upright(axes, 1, rows, color=_STAND_IN["muted"], linewidth=0.8)
        axes.set_xlim(edges[0], end)

    return _plot(groups, words, draw, finish)


def _upright(axes: Any, x: float, rows: Sequence[float], **style: Any) -> None:
    """A line at ``x`` through what is drawn in each row (its lower end), not through the words above that."""
    axes.vlines([x] * len(rows), list(rows), [y + _DRAWN for y in rows], **{"zorder": 0} | style)


def _grid(axes: Any, rows: Sequence[float]) -> None:
    low, high = axes.get_xlim()
    for tick in axes.get_xticks():
        if low <= tick <= high:
            _upright(axes, tick, rows, color=_STAND_IN["grid"], linewidth=0.6, zorder=-1)
    axes.set_xlim(low, high)  # lines move the limits


def _limit(axes: Any, ends: Sequence[float], *, log: bool) -> None:
    import math

    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = min(ends), max(ends)
    if not log:
        room = (high - low or 1.0) * 0.06
        axes.set_xlim(low - room, high + room)
        axes.set_xticks([tick for tick in axes.get_xticks() if low - room / 4 <= tick <= high + room / 4])
        return
    axes.set_xscale("log")
    low, high = low / 1.12, high * 1.12
    axes.set_xlim(low, high)
    step = max(1, math.ceil(math.log2(high / low) / 7))
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    axes.xaxis.set_major_locator(FixedLocator([2.0**power for power in powers if power % step == 0]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}\N{MULTIPLICATION SIGN}"))


def _plot(
    groups: Sequence[Group],
    words: Words,
    draw: Callable[[Any, float, Mark], None],
    finish: Callable[[Any, Sequence[float]], None],
) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(), warnings.catch_warnings():
        # A name in a script that the measuring font lacks is still drawn by the reader's own fonts.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)  # type: ignore[arg-type]  # its stubs want one Literal per key
        rows = sum(len(group.marks) for group in groups)
        body = max(_ROW, rows * _ROW + len(groups) * _HEAD)
        height = _TOP + body + _BOTTOM
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes((0.01, _BOTTOM / height, 0.98, body / height))
        _style(axes, words.axis)
        bottoms = _lines(axes, groups, draw, body)
        finish(axes, bottoms)
        _grid(axes, bottoms)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), words)


def _style(axes: Any, title: str) -> None:
    axes.set_yticks([])
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_STAND_IN["grid"])
    axes.tick_params(axis="x", color=_STAND_IN["grid"], labelcolor=_STAND_IN["muted"], length=3)
    axes.set_xlabel(title, color=_STAND_IN["muted"], labelpad=4)


def _lines(axes: Any, groups: Sequence[Group], draw: Callable[[Any, float, Mark], None], body: float) -> list[float]:
    """Headings and marks from the top down; one unit of y is one row. Gives the lower end of each mark's row."""
    rows = []
    y = body / _ROW
    axes.set_ylim(0, y)
    across = axes.get_yaxis_transform()
    for group in groups:
        y -= _HEAD / _ROW
        axes.text(
            0,
            y + 0.22,
            _short(group.heading, _HEADING_LETTERS),
            transform=across,
            color=_STAND_IN["ink"],
            weight="bold",
            va="baseline",
        )
        for mark in group.marks:
            y -= 1
            label = {"transform": across, "va": "baseline", "clip_on": False}
            axes.text(0, y + _BASELINE, _short(mark.label, _LABEL_LETTERS), color=_STAND_IN["ink"], **label)
            axes.text(1, y + _BASELINE, clean(mark.text), color=_STAND_IN["muted"], ha="right", **label)
            draw(axes, y + 0.24, mark)
            rows.append(y)
    return rows


def _short(text: str, letters: int) -> str:
    """The cleaned text, its middle left out where it is longer: both ends tell names apart."""
    text = clean(text)
    if len(text) <= letters:
        return text
    tail = letters // 2
    return f"{text[: letters - tail - 1]}…{text[-tail:]}"


def _inline(svg: str, words: Words) -> str:
    """The drawing for the body of an HTML page: no prologue, namespaces or metadata; ids made unique."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', svg)
    body = svg[svg.index(">") + 1 :]
    for role, colour in _STAND_IN.items():
        body = body.replace(colour, f"var(--{role})")
    body = re.sub(r'(<\w+ )id="', rf'\1id="{words.key}-', body)
    body = re.sub(r'xlink:href="#', f'href="#{words.key}-', body)
    body = body.replace("url(#", f"url(#{words.key}-")
    body = re.sub(r"font-family: [^;\"<]*", "font-family: var(--font)", body)
    body = re.sub(r"<style.*?</style>", "", body, count=1, flags=re.DOTALL)  # it would style the whole page
    name, more = f"{words.key}-title", f"{words.key}-description"
    return (
        f'<svg {box.group(0) if box else ""} role="img" aria-labelledby="{name} {more}">'
        f'<title id="{name}">{html.escape(clean(words.title))}</title>'
        f'<desc id="{more}">{html.escape(clean(words.description))}</desc>{body.strip()}'
    )
