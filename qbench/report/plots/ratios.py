"""Rows with an estimate and its limits: the speed-up over the fastest fp32, and the change of accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from qbench import formatting
from qbench.report import palette
from qbench.report.plots import rows, scale
from qbench.report.plots.canvas import ROLES
from qbench.report.plots.cases import MOST, Case, Estimate, choose, list_settings
from qbench.report.plots.frames import measured_cases, nothing_to_draw
from qbench.report.plots.rows import Flag, Group, Row
from qbench.stats.interval_type import Interval

if TYPE_CHECKING:
    import pandas as pd


def speedup(frame: pd.DataFrame, most: int = MOST) -> Any:
    """A matplotlib figure of a frame of cases: how many times as fast as the setting's fastest fp32 each int8 case is,
    with its limits, and as a thin tick what it is over the fp32 on its own runtime."""
    chosen, _ = choose_speedups(measured_cases(frame, most), most)
    if not chosen:
        raise nothing_to_draw("speedup", "no int8 case of the frame has a time over the fastest fp32")
    ratios = {id(case): over_best(case) for case in chosen}
    ticks = [tick for case in chosen if (tick := case.number("speedup.value"))]
    values = [ratio.value for ratio in ratios.values() if ratio]
    ends = [limit for ratio in ratios.values() if ratio for limit in ratio.known]
    named = [ratio.value for case in chosen if (ratio := ratios[id(case)]) and case.role]
    across = scale.logarithmic([*values, *ticks], ends, [1.0, *named], words=_times)

    def draw(axes: Any, y: float, row: Row) -> None:
        case = by_row[row.key]
        ratio, tick = ratios[id(case)], case.number("speedup.value")
        if tick:
            axes.vlines([across.clip(tick)], y - 7, y + 5, color=ROLES["muted"], linewidth=1.4, zorder=2)
        if ratio is not None:
            rows.draw_interval(axes, ratio.low, ratio.high, y - 1, row, across)
            rows.draw_mark(axes, ratio.value, y - 1, row, across)

    groups, by_row = group_rows(chosen, lambda case: show(ratios[id(case)]))
    flags = [Flag(at=1.0, text="fastest fp32 = 1", role="ink")]
    return rows.draw_rows(groups, across, "times as fast as the fastest fp32 (log)", draw, flags)


def accuracy(frame: pd.DataFrame, most: int = MOST) -> Any:
    """A matplotlib figure of a frame of cases: the paired change of accuracy of each int8 case against fp32, the limits
    that were tested thick and those of 95 % thin, with the suite's limit."""
    chosen, _ = choose_changes(measured_cases(frame, most), most)
    if not chosen:
        raise nothing_to_draw("accuracy", "no int8 case of the frame has a change of accuracy")
    changes = {id(case): change_of(case) for case in chosen}
    known = [change for change in changes.values() if change is not None]
    limit = limit_of(chosen)
    named = [change.value for case in chosen if (change := changes[id(case)]) and case.role]
    must = [0.0, *([] if limit is None else [limit]), *named]
    ends = [end for change in known for end in change.known]
    across = scale.linear([change.value for change in known], ends, must)

    def draw(axes: Any, y: float, row: Row) -> None:
        case = by_row[row.key]
        change, tested = changes[id(case)], tested_of(case)
        if change is None:
            return
        rows.draw_interval(axes, change.low, change.high, y - 1, row, across, width=1.2)
        if tested is not None:
            rows.draw_interval(axes, *tested, y - 1, row, across, width=4.5)
        rows.draw_mark(axes, change.value, y - 1, row, across)

    def text(case: Case) -> str:
        sign = palette.VERDICTS.get(str(case["accuracy.verdict"]))
        number = show(changes[id(case)], signed=True, least=1)
        return number if sign is None else f"{number} {sign.symbol} {sign.word}"

    groups, by_row = group_rows(chosen, text)
    flags = [Flag(at=0.0, text="as fp32", role="muted")]
    if limit is not None:
        flags.append(Flag(at=limit, text=f"limit {_signed(limit)}", role="bad", dashed=True))
    case = chosen[0]
    unit = f", {case['metric.unit']}" if case["metric.unit"] else ""
    better = "left" if case["metric.higher_is_better"] is False else "right"
    title = f"change of {case['accuracy.metric']}{unit} ({better} is better)"
    return rows.draw_rows(groups, across, title, draw, flags)


def over_best(case: Case) -> Estimate | None:
    """How many times as fast as the setting's fastest fp32."""
    time = case.estimate("over_best_fp32")
    if time is None or time.value <= 0:
        return None
    low, high = (None if not limit else 1 / limit for limit in (time.high, time.low))
    return Estimate(1 / time.value, low, high)


def change_of(case: Case) -> Estimate | None:
    """The paired change of accuracy in shown units."""
    return case.estimate("accuracy.delta", scale=case.number("metric.scale") or 1.0)


def tested_of(case: Case) -> tuple[float, float] | None:
    """The limits that the verdict rests on, in shown units; None where the case was not tested."""
    low, high = case.number("accuracy.tested.low"), case.number("accuracy.tested.high")
    factor = case.number("metric.scale") or 1.0
    return None if low is None or high is None else (low * factor, high * factor)


def limit_of(cases: Sequence[Case]) -> float | None:
    """The change that is not allowed to be passed, in shown units; None where the int8 cases have different limits."""
    limits = {
        margin * (case.number("metric.scale") or 1.0) * (1 if case["metric.higher_is_better"] is False else -1)
        for case in cases
        if case.is_int8 and (margin := case.number("accuracy.margin")) is not None
    }
    return limits.pop() if len(limits) == 1 else None


def choose_speedups(cases: Sequence[Case], most: int = MOST) -> tuple[list[Case], int]:
    """The int8 cases with a speed-up that are shown, and how many are not."""
    return choose(
        [case for case in cases if case.is_int8 and over_best(case) is not None],
        lambda case: case.pace,
        most,
    )


def choose_changes(cases: Sequence[Case], most: int = MOST) -> tuple[list[Case], int]:
    """The int8 cases with a change of accuracy that are shown, the fastest first, and how many are not."""
    return choose(
        [case for case in cases if case.is_int8 and change_of(case) is not None], lambda case: case.pace, most
    )


def group_rows(cases: Sequence[Case], text: Callable[[Case], str]) -> tuple[list[Group], dict[str, Case]]:
    """The cases as rows under the heading of their setting, and the case of each row."""
    by_row = {f"{number}": case for number, case in enumerate(cases)}
    groups = []
    for name in list_settings(cases):
        shown = [
            Row(key=key, label=case.variant, text=text(case), mode=case.mode, backend=case.backend, role=case.role)
            for key, case in by_row.items()
            if case.setting == name
        ]
        groups.append(Group(heading=name, rows=shown))
    return groups, by_row


def show(estimate: Estimate | None, *, signed: bool = False, least: int = 2) -> str:
    """``2.51 [2.46, 2.57]``."""
    if estimate is None:
        return formatting.DASH
    interval = Interval(value=estimate.value, low=estimate.low, high=estimate.high)
    return formatting.with_limits(interval, signed=signed, least=least).replace("-", "\N{MINUS SIGN}")


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "\N{MINUS SIGN}")


def _times(value: float) -> str:
    return f"{value:g}\N{MULTIPLICATION SIGN}"
