"""Which plots a report shows and what they say: records -> marks -> inline SVG with a caption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qbench import formatting
from qbench.compare import compare
from qbench.decide import cases
from qbench.decide.judged import Judged
from qbench.progress.table import TextTable
from qbench.record.schema import Record
from qbench.report import plots
from qbench.report.plots import Group, Mark, Role, Words
from qbench.stats.interval_type import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qbench.record.stored_run import StoredRun

# A plot of more lines is no longer read; the table holds them all.
MOST_MARKS = 40
# The axis of the latency distribution ends where 2 % of a case's calls are left, within these multiples of p50.
LATENCY_END = (1.06, 3.0)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One picture: ``key`` names it within a page (``pareto`` is the trade-off), ``caption`` says what it shows in a
    sentence, ``data`` holds what is drawn as text, and ``more`` counts the cases that only the table has."""

    key: str
    heading: str
    svg: str
    caption: str
    data: TextTable | None = None
    more: int = 0


MakeMark = Callable[[Record], "Mark | None"]


def figures(run: StoredRun, judged: Judged) -> tuple[Figure, ...]:
    """The plots for which the run has data, in reading order."""
    drawn = (_speedup(judged), _accuracy(judged), _size(judged), _latency(run, judged))
    return tuple(figure for figure in drawn if figure is not None)


def _speedup_interval(record: Record) -> Interval | None:
    speedup = record.speedup
    return None if speedup is None else Interval(value=speedup.value, low=speedup.low, high=speedup.high)


def _groups(judged: Judged, make: MakeMark, *, best_first: Callable[[Mark], float]) -> tuple[list[Group], int]:
    """Marks by setting, sorted, at most ``MOST_MARKS`` shared evenly; and how many were left out."""
    marked = []
    for setting in cases.settings(judged.records):
        records = cases.of_setting(setting, judged.records)
        marks = [mark for record in records if record.status == "ok" and (mark := make(record)) is not None]
        if marks:
            marked.append((setting, sorted(marks, key=best_first)))
    total = sum(len(marks) for _, marks in marked)
    if len(marked) > MOST_MARKS:
        marked = marked[:MOST_MARKS]
    share = MOST_MARKS // len(marked) if total > MOST_MARKS else total
    groups = [Group(heading=_heading(setting), marks=marks[:share]) for setting, marks in marked]
    return groups, total - sum(len(group.marks) for group in groups)


def _heading(setting: cases.Setting) -> str:
    plural = "s" if setting.threads > 1 else ""
    return f"{setting.model}  ·  {setting.threads} thread{plural}, batch {setting.batch_size}"


def _left_out(count: int) -> str:
    return f" {count} more are in the tables." if count else ""


def _speedup(judged: Judged) -> Figure | None:
    def mark(record: Record) -> Mark | None:
        interval = _speedup_interval(record)
        if interval is None or record.case.mode == "fp32":
            return None
        slow = interval.high is not None and interval.high < 1
        return _mark(record, interval, formatting.with_limits(interval), "bad" if slow else "int8")

    groups, more = _groups(judged, mark, best_first=lambda mark: -mark.value)
    if not groups:
        return None
    words = Words(
        key="speedup",
        title="Speed-up of each int8 variant over its like-for-like fp32",
        description=_told(groups),
        axis="times as fast as the like-for-like fp32 (log scale)",
    )
    caption = f"Right of 1 is faster than fp32 on the same runtime. Bars are 95 % intervals.{_left_out(more)}"
    svg = plots.intervals(groups, words, reference=1.0, log=True)
    return Figure(key=words.key, heading="Speed-up", svg=svg, caption=caption)


def _accuracy(judged: Judged) -> Figure | None:
    metric = judged.metric
    if metric is None:
        return None
    roles: dict[str | None, Role] = {"PASS": "good", "FAIL": "bad", "INCONCLUSIVE": "unsure", None: "muted"}

    def mark(record: Record) -> Mark | None:
        delta = record.accuracy.delta if record.accuracy else None
        if delta is None or record.case.mode == "fp32":
            return None
        shown = Interval(value=delta.value * metric.scale, low=_times(delta.low, metric.scale),
                         high=_times(delta.high, metric.scale))  # fmt: skip
        text = f"{formatting.with_limits(shown, signed=True, least=metric.least)} {metric.unit}".rstrip()
        return _mark(record, shown, text, roles[judged.outcome(record)])

    groups, more = _groups(judged, mark, best_first=lambda mark: -mark.value * metric.sign)
    if not groups:
        return None
    margin = None if judged.margin is None else -judged.margin * metric.sign
    words = Words(
        key="accuracy",
        title=f"Change of {metric.name} of each int8 variant against its like-for-like fp32",
        description=_told(groups),
        axis=f"change of {metric.name}{f', {metric.unit}' if metric.unit else ''}",
    )
    line = "" if margin is None else " The dashed line is the suite's margin."
    caption = (
        f"The same examples, paired; bars are 95 % intervals.{line} Green is within the margin, red is worse, "
        f"amber is undecided.{_left_out(more)}"
    )
    svg = plots.intervals(groups, words, reference=0.0, log=False, margin=margin)
    return Figure(key=words.key, heading="Accuracy change", svg=svg, caption=caption)


def _times(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _size(judged: Judged) -> Figure | None:
    def mark(record: Record) -> Mark | None:
        if record.artifact is None:
            return None
        count = record.artifact.size_bytes
        fp32 = compare.like_for_like(record, judged.records)
        text = formatting.size(count)
        if record.case.mode != "fp32" and fp32 is not None and fp32.artifact is not None and fp32.artifact.size_bytes:
            text += f"  ({formatting.share(count / fp32.artifact.size_bytes, 0)} of fp32)"
        role: Role = "fp32" if record.case.mode == "fp32" else "int8"
        return _mark(record, Interval(value=count / 1e6), text, role)

    groups, more = _groups(judged, mark, best_first=lambda mark: -mark.value)
    if not groups:
        return None
    words = Words(key="size", title="Bytes of each artifact", description=_told(groups), axis="size, MB")
    caption = f"Exact bytes of what is shipped; fp32 in grey.{_left_out(more)}"
    return Figure(key=words.key, heading="Size", svg=plots.bars(groups, words), caption=caption)


def _latency(run: StoredRun, judged: Judged) -> Figure | None:
    calls: dict[str, NDArray[Any]] = {}

    def mark(record: Record) -> Mark | None:
        nanoseconds = run.samples(record).get("calls_ns")
        if nanoseconds is None or nanoseconds.size < 2 or (median := _typical_ns(record, nanoseconds)) <= 0:
            return None
        calls[record.case.id] = nanoseconds / median
        role: Role = "fp32" if record.case.mode == "fp32" else "int8"
        return Mark(
            label=cases.variant(record),
            text=f"p50 {formatting.duration(median / 1e9)}, {nanoseconds.size:,} calls",
            value=median,
            role=role,
            key=record.case.id,
        )

    groups, more = _groups(judged, mark, best_first=lambda mark: mark.value)
    if not groups:
        return None
    words = Words(
        key="latency",
        title="Distribution of single calls, each case over its own median",
        description=_told(groups),
        axis="time of a call over the case's own median",
    )
    shown = [calls[mark.key] for group in groups for mark in group.marks]
    end = min(max(LATENCY_END[0], *(_quantile(one, 0.98) for one in shown)), LATENCY_END[1])
    caption = (
        f"Every kept call. A narrow hill is a quiet machine; a second hill, or calls gathered at the right edge "
        f"({end:.2f} and beyond), are noise or a slow path.{_left_out(more)}"
    )
    svg = plots.ridges(groups, words, lambda mark: calls[mark.key], end)
    return Figure(key=words.key, heading="Latency distribution", svg=svg, caption=caption)


def _typical_ns(record: Record, nanoseconds: NDArray[Any]) -> float:
    """The record's p50, which may be that of undisturbed blocks alone; the median where it has none."""
    p50 = record.latency.p50_seconds if record.latency else None
    return p50 * 1e9 if p50 is not None else _quantile(nanoseconds, 0.5)


def _quantile(values: NDArray[Any], q: float) -> float:
    import numpy as np

    return float(np.quantile(values, q))


def _mark(record: Record, interval: Interval, text: str, role: Role) -> Mark:
    return Mark(
        label=cases.variant(record),
        text=text.replace("-", "\N{MINUS SIGN}"),
        value=interval.value,
        low=interval.low,
        high=interval.high,
        role=role,
        key=record.case.id,
    )


def _told(groups: Sequence[Group]) -> str:
    """The plot for those who cannot see it."""
    lines = (f"{group.heading}: " + ", ".join(f"{mark.label} {mark.text}" for mark in group.marks) for group in groups)
    return "; ".join(lines)
