"""Cost a variant costs besides the time of a call: bytes on disk, memory, and the time until the first answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from qbench import formatting
from qbench.report.plots import rows, scale
from qbench.report.plots.canvas import ROLES
from qbench.report.plots.cases import (
    MOST,
    SHIPPED,
    FrameCase,
    choose,
    list_settings,
    measured_cases,
    nothing_to_draw,
    require_name,
)
from qbench.report.plots.picture import Drawing, name_case, plural, span_column, tabulate
from qbench.report.plots.rows import PictureRow

if TYPE_CHECKING:
    import pandas as pd

Cost = Literal["size", "memory", "cold_start"]
TITLES: dict[Cost, str] = {
    "size": "size of what is shipped",
    "memory": "memory of the process, at its peak",
    "cold_start": "until the first answer (loading: thin, grey)",
}


def footprint(frame: pd.DataFrame, what: Cost = "size", most: int = MOST) -> Any:
    """A matplotlib figure of a frame of cases: a bar from zero for the size, the memory or the cold start of each."""
    require_name("footprint", what, TITLES)
    chosen, _ = choose_sized(measured_cases(frame, most), what, most)
    if not chosen:
        raise nothing_to_draw("footprint", f"no case of the frame has its {what} measured")
    values = [amount(case, what) or 0.0 for case in chosen]
    unit, name = _unit(what, max(values, default=1.0))
    across = scale.from_zero([value / unit for value in values])

    def draw(axes: Any, y: float, row: PictureRow) -> None:
        case = by_row[row.key]
        value, first = (amount(case, what) or 0.0) / unit, 0.0
        if what == "cold_start":
            first = (case.number("cold_start.load_seconds") or 0.0) / unit
            axes.barh([y - 1], [first], height=3, color=ROLES["muted"])
        axes.barh([y - 1], [value - first], left=first, height=8, **rows.bar_style(row))

    groups, by_row = rows.group_rows(chosen, lambda case: show_amount(case, what))
    return rows.draw_rows(groups, across, f"{TITLES[what]}, {name}", draw)


def list_drawings(frame: pd.DataFrame, cases: Sequence[FrameCase]) -> Iterator[Drawing]:
    """A picture for each cost that was measured."""
    for cost in TITLES:
        chosen, more = choose_sized(cases, cost)
        if chosen:
            name = cost.replace("_", " ")
            yield Drawing(
                key=cost.replace("_", "-"),
                heading=name.capitalize(),
                draw=partial(footprint, frame, cost),
                caption=_conclude(cases, cost),
                data=tabulate(chosen, {name: partial(show_amount, cost=cost)}),
                more=more,
            )


def _conclude(cases: Sequence[FrameCase], cost: Cost) -> str:
    """The least of all, and what is shipped beside fp32."""
    measured = [case for case in cases if amount(case, cost)]
    several = len(list_settings(cases)) > 1
    shipped = [case for case in measured if case.role in SHIPPED][:3]
    sentences = [f"To ship{_tell_amount(case, cost, several=several)}" for case in shipped]
    least = min(measured, key=lambda case: amount(case, cost) or 0.0)
    if least not in shipped:
        words = {"size": "Smallest of all", "memory": "Least of all", "cold_start": "Fastest of all"}
        sentences.append(f"{words[cost]}{_tell_amount(least, cost, several=several)}")
    starts = span_column(measured, "cold_start.processes")
    notes = {
        "size": "Exact bytes; in brackets the share of fp32's.",
        "memory": "The whole process with its runtime.",
        "cold_start": f"Medians of {starts} fresh processes, libraries imported.",
    }
    count = plural(len(measured), "case")
    return f"{'. '.join(sentences)}. Measured are n = {count}, without intervals; hollow bars are fp32. {notes[cost]}"


def _tell_amount(case: FrameCase, cost: Cost, *, several: bool) -> str:
    where = f" for {case.setting}" if several else ""
    return f"{where}: {name_case(case)}, {show_amount(case, cost)}"


def amount(case: FrameCase, cost: Cost) -> float | None:
    """Bytes, or seconds for the cold start; None where it was not measured."""
    if cost == "size":
        return case.number("artifact.size_bytes")
    if cost == "memory":
        return case.number("memory.peak_rss_bytes") or case.number("memory.loaded_rss_bytes")
    load, first = case.number("cold_start.load_seconds"), case.number("cold_start.first_call_seconds")
    return None if load is None or first is None else load + first


def choose_sized(cases: Sequence[FrameCase], cost: Cost, most: int = MOST) -> tuple[list[FrameCase], int]:
    """The cases that are shown, the least first, and how many are not."""
    return choose([case for case in cases if amount(case, cost)], most, lambda case: amount(case, cost) or 0.0)


def show_amount(case: FrameCase, cost: Cost) -> str:
    """``412 kB (26 %)`` of its fp32, ``31.2 ms``."""
    value = amount(case, cost)
    if value is None:
        return formatting.DASH
    if cost == "cold_start":
        return formatting.duration(value)
    share = case.number("size_over_fp32") if cost == "size" and case.is_contender else None
    return formatting.size(int(value)) + (
        f" ({formatting.share(share, 0)})" if share is not None and share != 1 else ""
    )


def _unit(cost: Cost, largest: float) -> tuple[float, str]:
    if cost == "cold_start":
        return formatting.time_unit(largest)
    return next(((unit, name) for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if largest >= unit), (1.0, "B"))
