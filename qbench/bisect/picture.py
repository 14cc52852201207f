"""The looks of a bisection as a picture: each candidate beside the good end, with its interval, from the good end down
to the bad one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qbench.bisect.answer import Answer
from qbench.bisect.question import Question
from qbench.bisect.search import Judged, Side
from qbench.bisect.text import find_named
from qbench.record.stored_run import MetricInfo
from qbench.report.plots import canvas
from qbench.report.plots.canvas import ROLES, SIZE, WIDTH, Role

_LEFT, _RIGHT, _ROW, _HEAD, _FOOT = 118.0, 12.0, 26.0, 8.0, 40.0
_COLORS: dict[Side, Role] = {"good": "good", "bad": "bad", "open": "unsure", "skipped": "muted"}
_MARKERS: dict[Side, str] = {"good": "circle", "bad": "square", "open": "diamond", "skipped": "cross"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the picture: what stands at its left, and what is known of the candidate (None: a gap of candidates
    that were not looked at)."""

    label: str
    judged: Judged | None = None
    is_named: bool = False


def list_rows(question: Question, answer: Answer) -> list[Row]:
    """From the good end to the bad one, with what was left out between them."""
    named = find_named(question, answer.bracket) if answer.kind == "named" and answer.bracket else None
    rows: list[Row] = []
    for before, place in itertools.pairwise([-1, *sorted(answer.judged)]):
        if place - before > 1:
            rows.append(Row(label=f"… {place - before - 1} more"))
        judged = answer.judged[place]
        rows.append(Row(label=question.candidates[place], judged=judged, is_named=place == named))
    return rows


def draw(question: Question, answer: Answer, metric: MetricInfo | None = None) -> Any:
    """The matplotlib figure."""
    rows = list_rows(question, answer)
    with canvas.settings():
        height = _HEAD + _ROW * len(rows) + _FOOT
        figure = canvas.new_figure(height)
        axes = canvas.add_axes(figure, _LEFT, _FOOT, WIDTH - _LEFT - _RIGHT, _ROW * len(rows) + _HEAD)
        canvas.style_axes(axes)
        axes.set_ylim(len(rows) - 0.5, -0.5 - _HEAD / _ROW)
        axes.set_yticks([])
        _draw_threshold(axes, question, answer, metric)
        for number, row in enumerate(rows):
            _draw_row(axes, number, row, question, metric)
        axes.set_xlabel(_name_axis(question, metric))
        if question.on == "failure":
            axes.set_xticks([])
        axes.margins(x=0.08)
    return figure


def _draw_threshold(axes: Any, question: Question, answer: Answer, metric: MetricInfo | None) -> None:
    """The good end's level, and the middle between both ends, which tells the sides apart."""
    axes.axvline(0, color=ROLES["muted"], linewidth=1, zorder=1)
    end = answer.judged.get(question.last)
    if question.on in ("latency", "accuracy") and end is not None and end.side == "bad" and end.value is not None:
        ratio, change = end.value.value**0.5 - 1, end.value.value / 2
        middle = 100 * ratio if question.on == "latency" else _scale(question, metric) * change
        axes.axvline(middle, color=ROLES["muted"], linewidth=1, linestyle=(0, (3, 3)), zorder=1)


def _draw_row(axes: Any, number: int, row: Row, question: Question, metric: MetricInfo | None) -> None:
    ink = ROLES["ink"] if row.judged else ROLES["muted"]
    label = canvas.fit_text(row.label, _LEFT - 14, bold=row.is_named)
    weight = "bold" if row.is_named else "normal"
    axes.text(
        -8 / (WIDTH - _LEFT - _RIGHT), number, label, transform=axes.get_yaxis_transform(), ha="right", va="center",
        fontsize=SIZE, color=ink, weight=weight,
    )  # fmt: skip
    judged = row.judged
    if judged is None:
        return
    color, marker = ROLES[_COLORS[judged.side]], canvas.MARKERS[_MARKERS[judged.side]]
    values = _list_values(question, judged, metric)
    if values is None:
        said = _describe_unmeasured(question, judged)
        axes.text(10 / (WIDTH - _LEFT - _RIGHT), number, said, transform=axes.get_yaxis_transform(), va="center",
                  fontsize=SIZE, color=color)  # fmt: skip
        return
    low, value, high = values
    if low is not None and high is not None:
        axes.plot([low, high], [number, number], color=color, linewidth=2, solid_capstyle="butt", zorder=2)
    axes.plot([value], [number], marker=marker, color=color, markersize=7, zorder=3)


def _describe_unmeasured(question: Question, judged: Judged) -> str:
    """In place of a value."""
    if judged.side == "skipped":
        return "cannot be looked at"
    if question.on == "failure":
        return "runs" if judged.side == "good" else "fails"
    return "the good end" if judged.reason is None else "the same as an end"


def _list_values(
    question: Question, judged: Judged, metric: MetricInfo | None
) -> tuple[float | None, float, float | None] | None:
    """What is drawn: per cent of time, points of the score, per cent of the examples."""
    interval = judged.value
    if interval is None:
        return None
    ends: Sequence[float | None] = (interval.low, interval.value, interval.high)
    if question.on == "latency":
        low, value, high = (None if end is None else (end - 1) * 100 for end in ends)
    else:
        scale = 100.0 if question.on == "bits" else _scale(question, metric)
        low, value, high = (None if end is None else scale * end for end in ends)
    assert value is not None
    return low, value, high


def _scale(question: Question, metric: MetricInfo | None) -> float:
    """What a change of the score is drawn by; the journal holds it better being positive."""
    return 1.0 if metric is None else metric.scale * metric.sign


def _name_axis(question: Question, metric: MetricInfo | None) -> str:
    good = canvas.fit_text(f"beside {question.candidates[0]}", WIDTH - _LEFT - 70)
    if question.on == "latency":
        return f"time, %, {good}"
    if question.on == "bits":
        return "examples that differ, %"
    if question.on == "failure":
        return ""
    unit = metric.unit if metric is not None else ""
    return f"score{f', {unit}' if unit else ''}, {good}"
