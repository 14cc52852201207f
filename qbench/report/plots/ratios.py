"""Rows with an estimate and its limits: the speed-up over the fastest fp32, and the change of accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from qbench import formatting
from qbench.decide.tested_change import name_levels
from qbench.report import palette
from qbench.report.plots import rows, scale
from qbench.report.plots.canvas import ROLES
from qbench.report.plots.cases import MOST, FrameCase, choose, limits_of, measured_cases, name_kind, nothing_to_draw
from qbench.report.plots.picture import (
    Drawing,
    be,
    count_examples,
    count_of,
    minus,
    name_case,
    name_setting,
    plural,
    span_column,
    tabulate,
)
from qbench.report.plots.rows import Flag, PictureRow
from qbench.stats.interval_type import Interval

if TYPE_CHECKING:
    import pandas as pd


def speedup(frame: pd.DataFrame, most: int = MOST) -> Any:
    """A matplotlib figure of a frame of cases: how many times as fast as the setting's fastest fp32 each int8 case is,
    with its limits, and as a thin tick what it is over the fp32 on its own runtime."""
    chosen, _ = choose_speedups(measured_cases(frame, most), most)
    if not chosen:
        raise nothing_to_draw("speedup", "no case of the frame but fp32 has a time over the fastest fp32")
    ratios = {id(case): over_best(case) for case in chosen}
    ticks = [tick for case in chosen if (tick := case.number("speedup.value"))]
    values = [ratio.value for ratio in ratios.values() if ratio]
    ends = limits_of(filter(None, ratios.values()))
    named = [ratio.value for case in chosen if (ratio := ratios[id(case)]) and case.role]
    across = scale.logarithmic([*values, *ticks], ends, [1.0, *named], words=scale.times)

    def draw(axes: Any, y: float, row: PictureRow) -> None:
        case = by_row[row.key]
        ratio, tick = ratios[id(case)], case.number("speedup.value")
        if tick:
            axes.vlines([across.clip(tick)], y - 7, y + 5, color=ROLES["muted"], linewidth=1.4, zorder=2)
        if ratio is not None:
            rows.draw_interval(axes, ratio.low, ratio.high, y - 1, row, across)
            rows.draw_mark(axes, ratio.value, y - 1, row, across)

    groups, by_row = rows.group_rows(chosen, lambda case: show(ratios[id(case)]))
    flags = [Flag(at=1.0, text="fastest fp32 = 1", role="ink")]
    return rows.draw_rows(groups, across, "times as fast as the fastest fp32 (log)", draw, flags)


def accuracy(frame: pd.DataFrame, most: int = MOST) -> Any:
    """A matplotlib figure of a frame of cases: the paired change of accuracy of each int8 case against fp32 with its
    limits, those of the test, and the suite's limit."""
    chosen, _ = choose_changes(measured_cases(frame, most), most)
    if not chosen:
        raise nothing_to_draw("accuracy", "no case of the frame but fp32 has a change of accuracy")
    changes = {id(case): change_of(case) for case in chosen}
    measured = [change for change in changes.values() if change is not None]
    limit = limit_of(chosen)
    named = [change.value for case in chosen if (change := changes[id(case)]) and case.role]
    absolute = is_absolute(chosen)
    must = [*([] if absolute else [0.0]), *([] if limit is None else [limit]), *named]
    ends = limits_of(measured)
    across = scale.linear([change.value for change in measured], ends, must)

    def draw(axes: Any, y: float, row: PictureRow) -> None:
        case = by_row[row.key]
        change = changes[id(case)]
        if change is None:
            return
        rows.draw_interval(axes, change.low, change.high, y - 1, row, across)
        rows.draw_mark(axes, change.value, y - 1, row, across)

    def text(case: FrameCase) -> str:
        sign = palette.VERDICTS.get(str(case["accuracy.verdict"]))
        number = show(changes[id(case)], signed=not absolute, least=1)
        return number if sign is None else f"{number} {sign.symbol} {sign.word}"

    groups, by_row = rows.group_rows(chosen, text)
    flags = [] if absolute else [Flag(at=0.0, text="as fp32", role="muted")]
    if limit is not None:
        flags.append(Flag(at=limit, text=name_limit(chosen, limit), role="bad", dashed=True))
    case = chosen[0]
    unit = f", {case['metric.unit']}" if case["metric.unit"] else ""
    better = "left" if case["metric.higher_is_better"] is False else "right"
    title = f"{'' if absolute else 'change of '}{case['accuracy.metric']}{unit} ({better} is better)"
    return rows.draw_rows(groups, across, title, draw, flags)


def list_drawings(frame: pd.DataFrame, cases: Sequence[FrameCase]) -> Iterator[Drawing]:
    """Both pictures, as far as there is something on them."""
    chosen, more = choose_speedups(cases)
    if chosen:
        yield Drawing(
            key="speedup",
            heading="Speed-up over the fastest fp32",
            draw=partial(speedup, frame),
            caption=_conclude_speedups(cases),
            data=tabulate(
                chosen,
                {
                    "over the fastest fp32": lambda case: show(over_best(case)),
                    "over fp32 on the same runtime": lambda case: show(case.interval("speedup")),
                    "processes": lambda case: str(case["speedup.processes"] or formatting.DASH),
                },
            ),
            more=more,
        )
    chosen, more = choose_changes(cases)
    if chosen:
        unit = f", {chosen[0]['metric.unit']}" if chosen[0]["metric.unit"] else ""
        yield Drawing(
            key="accuracy",
            heading="Accuracy" if is_absolute(chosen) else "Accuracy change",
            draw=partial(accuracy, frame),
            caption=_conclude_changes(cases),
            data=tabulate(
                chosen,
                {
                    f"{'score' if is_absolute(chosen) else 'change'}{unit}, {describe_bars(chosen)}": show_change,
                    "verdict": lambda case: str(case["accuracy.verdict"] or formatting.DASH),
                    "examples": lambda case: f"{int(case['accuracy.n'] or 0):,}",
                },
            ),
            more=more,
        )


def _conclude_speedups(cases: Sequence[FrameCase]) -> str:
    """How many are faster, and which is the fastest."""
    rated = [(ratio, case) for case in cases if case.is_contender and (ratio := over_best(case)) is not None]
    faster = [case for ratio, case in rated if (ratio.low or ratio.value) > 1]
    slower = [case for ratio, case in rated if (ratio.high or ratio.value) < 1]
    ratio, best = max(rated, key=lambda pair: pair[0].value)
    count = count_of(len(faster), len(rated), name_kind(case for _, case in rated))
    first = f"{count} {be(len(faster))} faster than the fastest fp32"
    undecided = len(rated) - len(faster) - len(slower)
    rest = f"{len(slower) or 'None'} {be(len(slower))} slower" + (
        f", {undecided} cannot be told apart from it" if undecided else ""
    )
    top = f"the fastest is {name_case(best)}, {show(ratio)} times as fast{name_setting(best, cases)}"
    bars = "bars are 95 % intervals; the thin tick is the speed-up over fp32 on the same runtime"
    measured = f"Measured in n = {span_column(cases, 'speedup.processes')} processes a case"
    return f"{first}. {rest}; {top}. {measured}; {bars}."


def _conclude_changes(cases: Sequence[FrameCase]) -> str:
    """How many hold the limit."""
    judged = [case for case in cases if case.is_contender and change_of(case) is not None]
    counts = {
        name: sum(case["accuracy.verdict"] == name for case in judged) for name in ("PASS", "INCONCLUSIVE", "FAIL")
    }
    limit = limit_of(judged)
    unit = judged[0]["metric.unit"] or ""
    within = "" if limit is None else f" ({f'{name_limit(judged, limit)} {unit}'.rstrip()})"
    if not sum(counts.values()):
        first = f"The change of accuracy of {plural(len(judged), name_kind(judged))}; the suite sets no limit"
    else:
        verb = "keeps" if counts["PASS"] == 1 else "keep"
        clauses = [f"{count_of(counts['PASS'], len(judged), name_kind(judged))} {verb} the accuracy{within}"]
        clauses += [f"{counts['INCONCLUSIVE']} cannot be told with so few examples"] if counts["INCONCLUSIVE"] else []
        lose = ("is below", "are below") if is_absolute(judged) else ("loses more", "lose more")
        clauses += [f"{counts['FAIL']} {lose[counts['FAIL'] > 1]}"] if counts["FAIL"] else []
        first = ", ".join(clauses)
    return f"{first}. {count_examples(judged)}, the same for both; bars are {describe_bars(judged)}."


def over_best(case: FrameCase) -> Interval | None:
    """How many times as fast as the setting's fastest fp32."""
    time = case.interval("over_best_fp32")
    if time is None or time.value <= 0:
        return None
    low, high = (None if not limit else 1 / limit for limit in (time.high, time.low))
    return Interval(value=1 / time.value, low=low, high=high)


def is_absolute(cases: Sequence[FrameCase]) -> bool:
    """Whether scores are shown, since the suite gives a least one, and not changes."""
    return cases[0].number("accuracy.at_least") is not None


def change_of(case: FrameCase) -> Interval | None:
    """The paired change of accuracy in shown units; the score where the suite gives a least one."""
    change = case.interval("accuracy.delta", scale=case.number("metric.scale") or 1.0)
    if change is None:
        return None
    low, high = (None if end is None else end + _find_start(case) for end in (change.low, change.high))
    return Interval(value=change.value + _find_start(case), low=low, high=high)


def _find_start(case: FrameCase) -> float:
    """What a change is counted from, in shown units: no change, or fp32's score where scores are shown."""
    score, change = case.number("accuracy.value"), case.number("accuracy.delta.value")
    if not is_absolute([case]) or score is None or change is None:
        return 0.0
    return (score - change) * (case.number("metric.scale") or 1.0)


def describe_bars(cases: Iterable[FrameCase]) -> str:
    """``90 % limits, those of the test``: what the limits of these changes are."""
    levels = ((case.number("accuracy.delta.level"), bool(case["accuracy.verdict"])) for case in cases)
    return name_levels((level, tested) for level, tested in levels if level is not None)


def show_change(case: FrameCase) -> str:
    """``-0.2 [-1.0, +0.5]``, or a score without its sign."""
    return show(change_of(case), signed=not is_absolute([case]), least=1)


def limit_of(cases: Sequence[FrameCase]) -> float | None:
    """The change that is not allowed to be passed, or the least score, in shown units; None where the int8 cases have
    different limits."""
    limits = {
        least * (case.number("metric.scale") or 1.0)
        for case in cases
        if case.is_contender and (least := case.number("accuracy.at_least")) is not None
    } | {
        margin * (case.number("metric.scale") or 1.0) * (1 if case["metric.higher_is_better"] is False else -1)
        for case in cases
        if case.is_contender and (margin := case.number("accuracy.margin")) is not None
    }
    return limits.pop() if len(limits) == 1 else None


def name_limit(cases: Sequence[FrameCase], limit: float) -> str:
    """``limit -1.0``, ``at least 10``."""
    return minus(f"at least {limit:g}" if is_absolute(cases) else f"limit {limit:+.1f}")


def choose_speedups(cases: Sequence[FrameCase], most: int = MOST) -> tuple[list[FrameCase], int]:
    """The int8 cases with a speed-up that are shown, and how many are not."""
    return choose([case for case in cases if case.is_contender and over_best(case) is not None], most)


def choose_changes(cases: Sequence[FrameCase], most: int = MOST) -> tuple[list[FrameCase], int]:
    """The int8 cases with a change of accuracy that are shown, the fastest first, and how many are not."""
    return choose([case for case in cases if case.is_contender and change_of(case) is not None], most)


def show(interval: Interval | None, *, signed: bool = False, least: int = 2) -> str:
    """``2.51 [2.46, 2.57]``."""
    return minus(formatting.with_limits(interval, signed=signed, least=least))
