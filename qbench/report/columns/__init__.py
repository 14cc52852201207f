"""The columns of a case, each defined once: what it holds, how it is written, what it is called where a reader sees it.

``qbench.load``, results.csv, the page, summary.md, the terminal and the guide are made of them.

column     what a column is
case       which case, where it ran, what was decided
over_fp32  time and bytes against fp32
artifact   what is shipped
times      calls, speed-ups, what disturbed them, cold start, memory, the share of what a core can do; files
accuracy   the score, its change and the test of that
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from qbench import formatting
from qbench.decide.judged import Judged
from qbench.decide.tested_change import describe_levels, holds_against_fp32
from qbench.report.cells import CaseRow, Cell
from qbench.report.columns import accuracy, artifact, case, over_fp32, times
from qbench.report.columns.column import Column, Kind

COLUMNS: dict[str, Column] = {
    column.name: column
    for family in (case.family, over_fp32.family, artifact.family, times.family, accuracy.family, times.roofline)
    for column in family.columns
}
STORED = {name: column for name, column in COLUMNS.items() if column.kind}
DTYPES: dict[Kind, str] = {"text": "object", "number": "float64", "count": "Int64", "flag": "boolean"}
# Columns that a run has as its cases have them: the start of their names, and what they hold.
OPEN: dict[str, str] = {
    "recipe.": "how the variant was made, as the suite and the defaults have it: `recipe.calibrator`, …",
    "observed.": "what was set and then read back from the runtime: `observed.threads`, `observed.engine`, …",
    "elapsed_seconds.": "what the stages of this case took: `elapsed_seconds.build`, …; number, s",
}
AS_SHARE = "as a share"  # the unit of what the page shows in percent
_LONGEST = 20  # characters of a metric's name that heads a column of the terminal


def list_shown(judged: Judged, unit: str, *, raw: bool = False) -> dict[str, Column]:
    """The columns of the table of cases that a run has, by key, titles and hints filled in; ``unit`` is that of the
    latencies; ``raw``: the titles say the unit in which scores are stored."""
    metric = judged.metric
    score = "%" if metric is None or metric.percent else metric.own_unit
    change = metric.unit if metric else ""
    if raw and score == "%":
        score = change = AS_SHARE
    words = {
        "time": unit,
        "metric": metric.name if metric else "accuracy",
        "short_metric": formatting.clean(formatting.shorten(metric.name, _LONGEST)) if metric else "accuracy",
        "score": f", {score}" if score else "",
        "percent": ", %" if metric and metric.percent else "",
        "change": f", {change}" if change else "",
        "levels": describe_levels(judged, judged.records),
        **case.MINIMIZED.get(judged.decide.minimize, {}),
    }
    return {
        column.key: replace(
            column,
            title=column.title.format(**words),
            terminal=(column.terminal or column.title).format(**words),
            markdown=(column.markdown or column.title).format(**words),
            card=(column.card or column.title).format(**words),
            hint=column.hint.format(**words),
        )
        for column in COLUMNS.values()
        if column.key and column.applies(judged)
    }


def accuracy_key(judged: Judged) -> str:
    """The key of the column that tables of few columns have of the accuracy: the change; the score, where the metric
    itself is held against fp32."""
    return "accuracy" if holds_against_fp32(judged) else "delta"


def draw_cells(row: CaseRow) -> dict[str, Cell]:
    """The cell of each column of the table of cases, by key."""
    return {column.key: column.cell(row) for column in COLUMNS.values() if column.key}


def arrange(names: Iterable[str], order: str) -> list[str]:
    """The names of columns in the order of a table; behind them those that it does not mention."""
    ranks = {name: rank for rank, name in enumerate(order.split())}
    return sorted(names, key=lambda name: ranks.get(name, len(ranks)))
