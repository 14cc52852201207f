"""The table that `qbench run` prints: a heading for each setting, candidates first, as full as the width allows; pure.

The figures of a column have one number of decimals. Where not all limits fit, those of p50 go first, then those of the
change of accuracy; where not even the plain figures fit, each case becomes a block of lines.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from qbench import formatting
from qbench.compare.speedup_doubt import is_coarse
from qbench.decide import cases
from qbench.decide.cases import Setting
from qbench.decide.judged import Judged
from qbench.decide.objective import VALUES
from qbench.decide.tested_change import describe_levels, holds_against_fp32, shown_of
from qbench.foreign_text import join_lines
from qbench.progress.table import TextTable, align, format_table
from qbench.record.schema import Record
from qbench.report.cells import (
    COARSE,
    COARSE_MEANS,
    RATIO_DIGITS,
    REFERENCE,
    CaseRow,
    accuracy_limit,
    count_change_digits,
    count_digits,
    interval_cell,
    latency_unit,
    list_rows,
    time_of,
    unit_of,
)
from qbench.report.columns import accuracy_key, arrange, draw_cells, list_shown
from qbench.report.columns.case import MINIMIZED
from qbench.report.ruling import Rulings, rank
from qbench.stats.interval_type import Interval

# All columns, left to right.
WIDE = "minimized p50 p90 best speedup control size ratio accuracy seeds delta twin flips coverage judged"
# Which of the few columns have limits, the fullest way first.
_LIMITED = (("p50", "ratio", "change"), ("ratio", "change"), ("ratio",), ())
_NARROWEST = 20  # columns; narrower text is not read
_TOGETHER = (" %", " µs", " ms", " ns", " · ", " [")  # what no line ends before
_NO_BREAK = "\N{NO-BREAK SPACE}"


def draw(judged: Judged, rulings: Rulings, *, width: int | None, wide: bool = False) -> str:
    """The tables of all settings, each under its heading, then what the columns mean; empty without a measured case.

    ``width`` in columns of the terminal; None where there is none, and nothing must be left out. ``wide``: every
    column of the report.
    """
    tables = _wide(judged, rulings, width) if wide else _narrow(judged, rulings, width)
    explained = _explain_marks(judged) if wide else _explain(judged)
    return "\n\n".join([*tables, *([wrap(explained, width)] if tables else [])])


def wrap(line: str, width: int | None) -> str:
    """The line in lines of at most ``width`` characters (None: any), those after the first two further in.

    No word is broken, so that a path or an id can be copied, and a figure stays beside its unit and its limits.
    """
    line = join_lines(line)
    if width is None or len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    for joined in _TOGETHER:
        line = line.replace(joined, joined.replace(" ", _NO_BREAK))
    wrapped = textwrap.fill(
        line, max(width, _NARROWEST), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return wrapped.replace(_NO_BREAK, " ")


def _explain(judged: Judged) -> str:
    """What the columns mean."""
    metric, columns = judged.metric, list_shown(judged, "")
    title = columns[accuracy_key(judged)].terminal
    if metric is not None and holds_against_fp32(judged):
        change = f"its score, {'%' if metric.percent else metric.own_unit}"
    else:
        change = f"its change, {'' if metric is None else metric.unit}"
    change = f"{title}: {change.rstrip(', ')}{accuracy_limit(judged, judged.records)}"
    return (
        f"{_explain_brackets(judged, title)} The time is the median call (p50); {columns['best'].terminal}: how many "
        f"times as fast as the fastest fp32; {change}; {columns['size'].terminal}: of fp32's.{_explain_coarse(judged)}"
        f"{_list_means(judged)}"
    )


def _explain_marks(judged: Judged) -> str:
    """What brackets and marks mean, where the titles say the rest."""
    return f"{_explain_brackets(judged, 'the accuracy change')}{_explain_coarse(judged)}{_list_means(judged)}"


def _explain_brackets(judged: Judged, change: str) -> str:
    levels = describe_levels(judged, judged.records)
    tested = "" if levels == "95 % limits" else f", of {change} {levels.replace(' limits', '')}"
    return f"In brackets 95 % limits{tested}."


def _explain_coarse(judged: Judged) -> str:
    return f" {COARSE_MEANS}." if any(map(is_coarse, judged.records)) else ""


def _list_means(judged: Judged) -> str:
    """The mean of the calls of each case, where protocol sequential measured them: it is the literature's figure."""
    speedups = {record.case.id: record.speedup for record in judged.records if record.speedup}
    plain = {case: speedup.baseline for case, speedup in speedups.items() if speedup.protocol == "sequential"}
    means = [
        f"{record.case.id} {formatting.duration(record.latency.mean_seconds)}"
        for record in judged.records
        if record.case.id in {*plain, *plain.values()} and record.latency and record.latency.mean_seconds
    ]
    return f" Means by protocol sequential, without limits: {', '.join(means)}." if means else ""


def _wide(judged: Judged, rulings: Rulings, width: int | None) -> list[str]:
    """Each setting with every column that has a value in it."""
    tables = []
    for setting, records in _measured(judged):
        size, unit = latency_unit(records)
        cells = {row.record.case.id: draw_cells(row) for row in list_rows(judged, records, size)}
        filled = {key for of_case in cells.values() for key, cell in of_case.items() if cell.text != formatting.DASH}
        titled = list_shown(judged, unit)
        keys = [key for key in arrange(titled, WIDE) if key in filled]
        lines = [
            [formatting.clean(str(cells[record.case.id][key])) for key in keys]
            for record in rank(judged, records, rulings)
        ]
        content = _table(judged, records, rulings, [titled[key].title for key in keys], lines)
        tables.append(f"{_heading(setting)}\n{format_table(content, width)}")
    return tables


def _table(
    judged: Judged,
    records: Sequence[Record],
    rulings: Rulings,
    titles: Sequence[str],
    lines: Sequence[Sequence[str]],
) -> TextTable:
    """The lines of ranked cases, each between its variant and its verdict."""
    rows = tuple(
        (formatting.clean(cases.variant(record)), *cells, rulings[record.case.id].word)
        for record, cells in zip(rank(judged, records, rulings), lines, strict=True)
    )
    return TextTable(columns=("variant", *titles, "verdict"), rows=rows, words=(0, len(titles) + 1))


def _narrow(judged: Judged, rulings: Rulings, width: int | None) -> list[str]:
    """Each setting as full as the fullest way in which all of them fit."""
    settings = _measured(judged)
    drawn: list[list[TextTable]] = []
    for limited in _LIMITED:
        drawn.append([_setting_table(judged, records, rulings, limited) for _, records in settings])
        widest = max((len(line) for content in drawn[-1] for line in align(content).splitlines()), default=0)
        if width is None or widest <= width:
            break
    return [
        f"{_heading(setting)}\n{format_table(content, width)}"
        for (setting, _), content in zip(settings, drawn[-1], strict=True)
    ]


def _heading(setting: Setting) -> str:
    return formatting.clean(cases.setting_name(setting))


def _measured(judged: Judged) -> list[tuple[Setting, list[Record]]]:
    """Each setting with its measured cases; without any it is left out."""
    by_setting = (
        (setting, [r for r in cases.of_setting(setting, judged.records) if r.status == "ok"])
        for setting in cases.settings(judged.records)
    )
    return [(setting, records) for setting, records in by_setting if records]


def _setting_table(judged: Judged, records: Sequence[Record], rulings: Rulings, limited: Sequence[str]) -> TextTable:
    """Time, times as fast as the fastest fp32, the change of accuracy (the score, where that is held against fp32) and
    the size over that of fp32, all of a column with as many decimals."""
    unit, unit_name = latency_unit(records)
    rows = [CaseRow(judged=judged, record=record, unit=unit) for record in rank(judged, records, rulings)]
    times = [time_of(row.record) for row in rows]
    ratios = [rulings[row.record.case.id].over_fp32 for row in rows]
    changes = [shown_of(judged, row.record) for row in rows]
    time_digits, sizes = count_digits(judged, records, unit).time, _decimals_of_sizes(rows)
    ratio = _column(ratios, 1.0, RATIO_DIGITS, "ratio" in limited)
    change = _column(
        [None if change is None else change.interval for change in changes],
        rows[0].scale,
        count_change_digits(judged.metric, changes, without_limits=1),
        "change" in limited,
        signed=not holds_against_fp32(judged),
    )
    titled = list_shown(judged, unit_name)
    columns = [
        *_minimized(rows),
        (titled["p50"].terminal, _column(times, 1 / unit, time_digits, "p50" in limited)),
        (titled["best"].terminal, _mark_reference(_mark_coarse(ratio, rows, ratios), rows, ratios)),
        (titled[accuracy_key(judged)].terminal, change),
        (titled["size"].terminal, [formatting.share(row.size_over_fp32, sizes) for row in rows]),
    ]
    titles, cells = zip(*columns, strict=True)
    return _table(judged, records, rulings, titles, list(zip(*cells, strict=True)))


def _minimized(rows: Sequence[CaseRow]) -> list[tuple[str, list[str]]]:
    """The column of what the decision minimizes with its title; none where another column has it or no case has one."""
    objective = rows[0].judged.decide.minimize
    values = [VALUES[objective](row.record) for row in rows]
    measured = [value for value in values if value is not None]
    if objective == "latency" or not measured:
        return []
    unit, name = unit_of(objective, measured)
    digits = formatting.decimals(Interval(value=min(measured)), 1 / unit)
    cells = [formatting.DASH if value is None else formatting.fixed(value / unit, digits) for value in values]
    return [(f"{MINIMIZED[objective]['minimized']}, {name}", cells)]


def _decimals_of_sizes(rows: Sequence[CaseRow]) -> int:
    """None, or as many as tell a size from the limit that it breaks."""
    digits = 0
    for row in rows:
        checks = [check for check in row.judged.checks_of(row.record) if check.limit == "size"]
        most = checks[0].threshold if checks else None
        if most is not None and row.size_over_fp32 is not None:
            digits = formatting.places_beside([row.size_over_fp32 * 100], most * 100, digits)
    return digits


def _column(
    values: Sequence[Interval | None], scale: float, digits: int, limited: bool, *, signed: bool = False
) -> list[str]:
    """The cells of a column, all with so many decimals; limits that some have keep their place in those that have
    none."""
    cells = [interval_cell(value, digits, scale=scale, signed=signed) for value in values]
    widest = max((len(cell.limits) for cell in cells), default=0)
    if not limited or not widest:
        return [cell.text for cell in cells]
    return [f"{cell.text} {cell.limits.ljust(widest)}" for cell in cells]


def _mark_reference(cells: Sequence[str], rows: Sequence[CaseRow], ratios: Sequence[Interval | None]) -> list[str]:
    """The cells, with ``REFERENCE`` for the fastest fp32, which is once as fast as itself; its brackets stand below
    those of the others."""
    width = max(map(len, cells), default=0)
    start = min((cell.index("[") for cell in cells if "[" in cell), default=0)
    text = REFERENCE.text if not start else f"{REFERENCE.text} {REFERENCE.limits}"
    text = text.rjust(start + len(text) - 2) if start else text
    is_reference = [
        row.record.case.mode == "fp32" and ratio == Interval(value=1.0) for row, ratio in zip(rows, ratios, strict=True)
    ]
    return [text.ljust(width) if marked else cell for cell, marked in zip(cells, is_reference, strict=True)]


def _mark_coarse(cells: Sequence[str], rows: Sequence[CaseRow], ratios: Sequence[Interval | None]) -> list[str]:
    """The cells, with ``COARSE`` in place of the limits of what was only screened."""
    coarse = [is_coarse(row.record) and ratio is not None for row, ratio in zip(rows, ratios, strict=True)]
    if not any(coarse):
        return list(cells)
    numbers = [cell.split()[0] for cell in cells]
    start = max(map(len, numbers))
    width = max(*map(len, cells), start + len(COARSE))
    behind = [
        COARSE if marked else cell[len(number) :] for cell, number, marked in zip(cells, numbers, coarse, strict=True)
    ]
    return [f"{number.rjust(start)}{rest}".ljust(width) for number, rest in zip(numbers, behind, strict=True)]
