"""Which pictures a report shows: a run's frames -> inline SVG, a caption with the conclusion, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from qbench.decide import decision
from qbench.decide.cases import setting_name
from qbench.decide.decision import Decision
from qbench.decide.judged import Judged
from qbench.formatting import clean
from qbench.progress.table import TextTable
from qbench.record.stored_run import StoredRun
from qbench.report import captions, plots
from qbench.report.frame import calls_frame, cases_frame, layers_frame, setting_of
from qbench.report.plots import call_times, costs, growth, layer_errors, peaks, ratios, svg, trade_off, trade_off_points
from qbench.report.plots.cases import Case, list_settings, read_cases

if TYPE_CHECKING:
    import pandas as pd

MOST_SETTINGS = 6  # trade-offs that are shown, one a setting


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One picture: ``key`` names it within a page (``pareto`` is the trade-off), ``caption`` says what it shows in a
    sentence, ``data`` holds what is drawn as text, ``more`` counts the cases that only the table has, and ``unnamed``
    the points that have no name beside them."""

    key: str
    heading: str
    svg: str
    caption: str
    data: TextTable | None = None
    more: int = 0
    unnamed: int = 0


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A picture before it is drawn as SVG."""

    key: str
    heading: str
    draw: Callable[[], Any]
    caption: str
    data: TextTable
    more: int = 0
    unnamed: int = 0


def figures(run: StoredRun, judged: Judged, decisions: Sequence[Decision] | None = None) -> tuple[Figure, ...]:
    """The pictures for which the run has data, in reading order. ``decisions``: those of ``judged``, where they are
    known already."""
    names = _list_names(run)
    return tuple(_inline(drawing, names) for drawing in list_drawings(run, judged, decisions))


def _list_names(run: StoredRun) -> frozenset[str]:
    """What pictures call the cases of a run."""
    cases = [record.case for record in run.records]
    names = {name for case in cases for name in (case.variant, f"{case.variant}, {case.model}", case.backend)}
    names |= {setting_name(setting_of(record)) for record in run.records}
    return frozenset(map(clean, names))


def list_drawings(run: StoredRun, judged: Judged, decisions: Sequence[Decision] | None = None) -> tuple[Drawing, ...]:
    """The same before they are drawn; ``draw()`` gives the matplotlib figure."""
    frame = cases_frame(run, judged, decision.decide(judged) if decisions is None else decisions)
    cases = read_cases(frame)
    return (
        *_draw_trade_offs(frame, cases),
        *_draw_ratios(frame, cases),
        *_draw_calls(run, frame, cases),
        *_draw_growth(frame, cases),
        *_draw_peaks(frame, cases),
        *_draw_layers(run, frame, cases),
        *_draw_costs(frame, cases),
    )


def _inline(drawing: Drawing, names: frozenset[str]) -> Figure:
    described = f"{drawing.caption} {captions.describe(drawing.data)}"
    listed = {clean(cell) for row in drawing.data.rows for cell in row}
    words = svg.Words(key=drawing.key, title=drawing.heading, description=described, names=names | listed)
    return Figure(
        key=drawing.key,
        heading=drawing.heading,
        svg=svg.inline(drawing.draw(), words),
        caption=drawing.caption,
        data=drawing.data,
        more=drawing.more,
        unnamed=drawing.unnamed,
    )


def _draw_trade_offs(frame: pd.DataFrame, cases: Sequence[Case]) -> Iterator[Drawing]:
    settings = [name for name in list_settings(cases) if len(trade_off_points.list_points(cases, name)) > 1]
    for number, name in enumerate(settings[:MOST_SETTINGS], start=1):
        points = trade_off_points.list_points(cases, name)
        chosen, rest = trade_off_points.choose_points(points)
        of_setting = frame[frame["case.setting"] == name]
        yield Drawing(
            key="pareto" if number == 1 else f"pareto-{number}",
            heading=f"Time against accuracy: {name}" if len(settings) > 1 else "Time against accuracy",
            draw=partial(plots.pareto, of_setting),
            caption=captions.conclude_trade_off(points),
            data=captions.tabulate_points(chosen),
            more=len(rest),
            unnamed=trade_off.count_unnamed(points),
        )


def _draw_ratios(frame: pd.DataFrame, cases: Sequence[Case]) -> Iterator[Drawing]:
    chosen, more = ratios.choose_speedups(cases)
    if chosen:
        yield Drawing(
            key="speedup",
            heading="Speed-up over the fastest fp32",
            draw=partial(plots.speedup, frame),
            caption=captions.conclude_speedups(cases),
            data=captions.tabulate_speedups(chosen),
            more=more,
        )
    chosen, more = ratios.choose_changes(cases)
    if chosen:
        yield Drawing(
            key="accuracy",
            heading="Accuracy change",
            draw=partial(plots.accuracy, frame),
            caption=captions.conclude_changes(cases),
            data=captions.tabulate_changes(chosen),
            more=more,
        )


def _draw_calls(run: StoredRun, frame: pd.DataFrame, cases: Sequence[Case]) -> Iterator[Drawing]:
    stored = {record.case.id for record in run.records if record.samples is not None}
    likely, left_out = call_times.choose_likely(cases, stored)
    calls = calls_frame(run, [run.by_id[case.key] for case in likely])
    timed = call_times.split_calls(calls)
    chosen, more = call_times.choose_timed(likely, timed)
    if chosen:
        yield Drawing(
            key="latency",
            heading="Time of single calls",
            draw=partial(plots.latency, frame, calls),
            caption=captions.conclude_calls(chosen, timed),
            data=captions.tabulate_calls(chosen, timed),
            more=more + left_out,
        )


def _draw_growth(frame: pd.DataFrame, cases: Sequence[Case]) -> Iterator[Drawing]:
    names: tuple[tuple[growth.By, str], ...] = (("threads", "More threads"), ("batch_size", "Larger batches"))
    for by, heading in names:
        lines, more = growth.list_lines(cases, by)
        if lines:
            yield Drawing(
                key=f"scaling-{by.replace('_', '-')}",
                heading=heading,
                draw=partial(plots.scaling, frame, by),
                caption=captions.conclude_growth(lines, by),
                data=captions.tabulate_growth(lines, by),
                more=more,
            )


def _draw_peaks(frame: pd.DataFrame, cases: Sequence[Case]) -> Iterator[Drawing]:
    chosen, more = peaks.choose_rated(cases)
    if chosen:
        yield Drawing(
            key="roofline",
            heading="Share of what the core can do",
            draw=partial(plots.roofline, frame),
            caption=captions.conclude_peaks(cases),
            data=captions.tabulate_peaks(chosen),
            more=more,
        )


def _draw_layers(run: StoredRun, frame: pd.DataFrame, cases: Sequence[Case]) -> Iterator[Drawing]:
    numbers = layers_frame(run)
    key = layer_errors.pick_case(cases, numbers)
    if key is None:
        return
    listed = layer_errors.list_layers(numbers, key)
    chosen, _ = layer_errors.choose_layers(listed)
    yield Drawing(
        key="layers",
        heading="Layer by layer",
        draw=partial(plots.layers, frame, numbers),
        caption=captions.conclude_layers(listed, len(chosen)),
        data=captions.tabulate_layers(chosen),
    )


def _draw_costs(frame: pd.DataFrame, cases: Sequence[Case]) -> Iterator[Drawing]:
    names: tuple[tuple[costs.What, str], ...] = (
        ("size", "Size"),
        ("memory", "Memory"),
        ("cold_start", "Cold start"),
    )
    for what, heading in names:
        chosen, more = costs.choose_sized(cases, what)
        if chosen:
            yield Drawing(
                key=what.replace("_", "-"),
                heading=heading,
                draw=partial(plots.footprint, frame, what),
                caption=captions.conclude_costs(cases, what),
                data=captions.tabulate_costs(chosen, what),
                more=more,
            )
