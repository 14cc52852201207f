"""What a case is against fp32 in time and bytes, and in which terms its accuracy is shown."""

from __future__ import annotations

from functools import partial
from typing import Any

from qbench import formatting
from qbench.decide import cases
from qbench.report.cells import (
    RATIO_DIGITS,
    REFERENCE,
    CaseRow,
    Cell,
    Tone,
    ratio_cell,
    typical_times,
)
from qbench.report.columns.column import Family
from qbench.stats.interval_type import Interval


def _over_best(row: CaseRow) -> Interval | None:
    """The case's time over that of the setting's fastest fp32, with limits where both were measured side by side."""
    record, best = row.record, row.best
    if record.status != "ok":
        return None
    if record is best:
        return Interval(value=1.0)
    if (fastest := record.speedup_fastest) is not None:
        low, high = (None if end is None else 1 / end for end in (fastest.high, fastest.low))
        return Interval(value=1 / fastest.value, low=low, high=high)
    times = typical_times(record, best)
    return None if times is None else Interval(value=times[0] / times[1])


def _read_over_best(row: CaseRow, end: str) -> float | None:
    return getattr(_over_best(row), end, None)


def _read_metric(row: CaseRow, field: str) -> Any:
    """What the run's metric says, of a case that has a score."""
    return None if row.record.accuracy is None else getattr(row.judged.metric, field, None)


family = Family()

family.list("[over_best_fp32.]")


@family.drawn(
    "value|number|ratio|time over that of the setting's fastest fp32; below 1 is faster|times the best fp32",
    read=partial(_read_over_best, end="value"),
    key="best",
    terminal="times fp32",
    hint="how many times as fast as the fastest fp32 of any backend; below 1 it is slower than plain fp32",
)
def _best(row: CaseRow) -> Cell:
    """Measured in one group where the record says so; else (older records) from the two p50."""
    record, best = row.record, row.best
    if (fastest := record.speedup_fastest) is not None:
        if fastest.baseline == record.case.id:
            return REFERENCE
        return ratio_cell(record, fastest, hint=f"against {fastest.baseline}", toned=cases.is_contender(record))
    if record is best:
        return REFERENCE
    if (times := typical_times(record, best)) is None:
        return Cell()
    seconds, least = times
    tone: Tone = "bad" if seconds > least and cases.is_contender(record) else ""
    return Cell(text=formatting.fixed(least / seconds, RATIO_DIGITS), sort=least / seconds, tone=tone)


family.list(
    """
low|number|ratio|its lower limit, 95 %
high|number|ratio|its upper limit, 95 %
[]
""",
    {end: partial(_read_over_best, end=end) for end in ("low", "high")},
)


@family.drawn(
    "size_over_fp32|number|ratio|bytes over those of the like-for-like fp32|of fp32",
    read=lambda row: row.size_over_fp32,
    key="ratio",
    hint="bytes over those of fp32 on the same runtime",
    within="size",
)
def _size_ratio(row: CaseRow) -> Cell:
    ratio = row.size_over_fp32
    if ratio is None or row.fp32 is row.record:
        return Cell()
    return Cell(text=formatting.share(ratio, 0), sort=ratio, hint=f"{ratio:.3f}")


family.list(
    """
[metric.]
scale|number||what a stored score is multiplied by to be shown: 100 for percent
unit|text||the unit of a shown difference: points for percent
higher_is_better|flag||which way is better
""",
    {field: partial(_read_metric, field=field) for field in ("scale", "unit", "higher_is_better")},
)
