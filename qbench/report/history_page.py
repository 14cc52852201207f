"""``history.html``: the runs of a suite over time, in one file without a script."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qbench import formatting
from qbench.decide import cases
from qbench.files import atomic
from qbench.progress.table import TextTable
from qbench.report import history_charts, html
from qbench.report.build import csv_text
from qbench.report.history import EnvironmentMark, History, HistoryLine, LevelChange, Panel, PastRun, read_history
from qbench.stats.change_points import ERROR, LEAST_RUNS, LEAST_SEGMENT

PAGE, VALUES = "history.html", "history.csv"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
LISTED_RUNS = 200  # of a table of runs, the latest
METHOD = (
    "Every row is a case: its first level stands on the left, its latest value on the right. All rows of a picture "
    "have the same logarithmic scale, so that a change of 5 % is as high in each. A change point is a new level of "
    f"at least {LEAST_SEGMENT} runs, looked for from {LEAST_RUNS} runs on; all lines of a machine share an error of "
    f"{ERROR * 100:g} %: where nothing changed, at most one machine in twenty shows one. "
    "Machines are never compared with each other."
)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One quantity: its drawing, what it shows in words, and the figures behind it."""

    heading: str
    svg: str
    caption: str
    data: TextTable


@dataclass(frozen=True, kw_only=True)
class MachinePage:
    """One machine: its charts, its changes of environment, its runs."""

    machine: str
    counted: str
    changes: TextTable
    charts: tuple[Chart, ...]
    marks: tuple[EnvironmentMark, ...]
    runs: TextTable
    aside: TextTable


def build_history(folder: Path) -> Path:
    """Writes ``history.html`` and ``history.csv`` into a suite's folder and returns the path of the first."""
    history = read_history(folder)
    atomic.write_text(folder / VALUES, _values(history))
    atomic.write_text(folder / PAGE, render(history))
    return folder / PAGE


def render(history: History) -> str:
    """The HTML text; the policy allows no source at all but inline styles."""
    return html.fill(
        "history.jinja",
        history=history,
        machines=tuple(_machine_page(panel) for panel in history.panels),
        lost=_runs_table(history.lost),
        sentence=_sum_up(history),
        method=METHOD,
        policy=POLICY,
    )


def _sum_up(history: History) -> str:
    changes = [change for panel in history.panels for change in panel.changes]
    machines = f"{len(history.panels):,} machine{'' if len(history.panels) == 1 else 's'}"
    runs = f"{history.runs:,} run{'' if history.runs == 1 else 's'} on {machines}"
    states = Counter(run.state for panel in history.panels for run in panel.aside)
    states["damaged"] += len(history.lost)
    if aside := ", ".join(f"{count:,} {state}" for state, count in states.items() if count):
        runs += f" ({states.total():,} in no line: {aside})"
    if not any(len(panel.runs) >= LEAST_RUNS for panel in history.panels):
        return f"{runs}: too few to look for change points, which takes {LEAST_RUNS} whole runs on one machine."
    if not changes:
        return f"{runs}: no change point."
    better = sum(change.for_better for change in changes)
    plural = "" if len(changes) == 1 else "s"
    worse = len(changes) - better
    return f"{runs}: {len(changes):,} change point{plural}, {worse:,} for the worse, {better:,} for the better."


def _machine_page(panel: Panel) -> MachinePage:
    runs, lost = len(panel.runs), sum(run.state == "files lost" for run in panel.runs)
    counted = f"{runs:,} run{'' if runs == 1 else 's'} in the lines"
    counted += f", {lost:,} of them with samples or predictions gone or cut (their records are whole)" if lost else ""
    counted += f"; {len(panel.aside):,} set aside" if panel.aside else ""
    charts = tuple(_charts(panel))
    return MachinePage(
        machine=panel.machine,
        counted=counted,
        changes=_changes_table(panel),
        charts=charts,
        marks=panel.marks,
        runs=_runs_table(panel.runs),
        aside=_runs_table(panel.aside),
    )


def _charts(panel: Panel) -> Iterator[Chart]:
    for quantity in panel.quantities:
        lines = [line for line in panel.series if line.quantity is quantity]
        svg = history_charts.draw(panel, quantity)
        if not svg:
            continue
        drawn = history_charts.list_lines(panel, quantity)
        span = math.expm1(history_charts.find_span(drawn)) * 100
        changed = [change for change in panel.changes if change.series.quantity is quantity]
        more = f" From the foot of a row to its top: {span:.0f} %."
        more += f" {len(lines) - len(drawn):,} more lines are in {VALUES}." if len(lines) > len(drawn) else ""
        yield Chart(
            heading=f"{quantity.title[0].upper()}{quantity.title[1:]}",
            svg=svg,
            caption=_caption(changed, len(lines), len(panel.runs)) + more,
            data=_data(drawn),
        )


def _caption(changed: list[LevelChange], lines: int, runs: int) -> str:
    cases_text = f"{lines:,} case{'' if lines == 1 else 's'}"
    if runs < LEAST_RUNS:
        return f"{cases_text}, {runs} runs: fewer than the {LEAST_RUNS} that a change point takes."
    if not changed:
        return f"No change point in {cases_text} over {runs:,} runs."
    first = changed[0]
    name = formatting.shorten(f"{first.series.record.case.model} {cases.variant(first.series.record)}", 60)
    several = f" and {len(changed) - 1:,} more" if len(changed) > 1 else ""
    return f"{name}: {_say_change(first)} from run {first.position + 1}{several}; {cases_text}, {runs:,} runs."


def _say_change(change: LevelChange) -> str:
    return f"{(change.ratio - 1) * 100:+.1f} %".replace("-", "\N{MINUS SIGN}")


def _changes_table(panel: Panel) -> TextTable:
    marks = {mark.position: mark for mark in panel.marks}
    rows = []
    for change in panel.changes:
        before, run = panel.runs[change.position - 1], panel.runs[change.position]
        mark = marks.get(change.position)
        rows.append(
            (
                change.series.record.case.id,
                change.series.quantity.title,
                f"{_say_change(change)} ({'better' if change.for_better else 'worse'})",
                f"{run.day}, run {change.position + 1} of {len(panel.runs)}",
                run.commit or "not known",
                before.commit or "not known",
                "; ".join(mark.texts) if mark else "nothing",
            )
        )
    titles = ("case", "quantity", "change", "since", "commit", "commit before", "environment changed")
    return TextTable(columns=titles, rows=tuple(rows), words=tuple(range(7)))


def _runs_table(runs: tuple[PastRun, ...]) -> TextTable:
    rows = tuple((run.name, run.day, run.commit or formatting.DASH, run.state, run.note) for run in runs[-LISTED_RUNS:])
    return TextTable(columns=("run", "day", "commit", "state", "note"), rows=rows, words=tuple(range(5)))


def _data(lines: list[HistoryLine]) -> TextTable:
    """First level, last value and change points of each line of a chart."""
    rows = []
    for line in lines:
        values, write = [value for value in line.values if value is not None], line.quantity.write
        low, high = write(min(values)), write(max(values))
        since = ", ".join(str(position + 1) for position in line.changes) or "none"
        first, last = write(line.first), write(line.latest)
        rows.append((line.record.case.id, str(len(values)), first, last, f"{low} to {high}", since))
    titles = ("case", "runs", "first level", "latest", "range", "change points, by run")
    return TextTable(columns=titles, rows=tuple(rows), words=(0, 4, 5))


def _values(history: History) -> str:
    """Every value of every run, one row a case and run."""
    import pandas as pd

    rows = []
    for panel in history.panels:
        for run in sorted((*panel.runs, *panel.aside), key=lambda run: run.name):
            for case, record in run.records.items():
                row = {"run": run.name, "state": run.state, "machine": panel.machine, "commit": run.commit}
                values = {quantity.key: quantity.read(record) for quantity in panel.quantities}
                rows.append(row | {"case.id": case} | values)
    columns = ["run", "state", "machine", "commit", "case.id", "speedup", "p50", "accuracy", "size", "memory"]
    return csv_text(pd.DataFrame(rows, columns=columns))
