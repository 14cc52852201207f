"""The rows and cells of tables of cases: what a row is made of, and how a figure is written in a cell; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from qbench import formatting
from qbench.compare import compare
from qbench.compare.speedup_doubt import is_coarse
from qbench.decide import cases
from qbench.decide.decision_type import Decision
from qbench.decide.judged import Judged
from qbench.decide.limits import AccuracyFloor
from qbench.decide.tested_change import ShownChange, change_of, count_decimals, holds_against_fp32, score_of
from qbench.record.schema import Fastest, Record, Speedup, flatten
from qbench.record.stored_run import MetricInfo, StoredRun
from qbench.stats.interval_type import Interval
from qbench.suite.settings import ObjectiveName

Tone = Literal["", "good", "bad", "unsure", "muted"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What stands in one cell: ``text`` with ``limits`` under or behind it; ``sort`` is its raw value, which orders the
    column (None last), ``low`` and ``high`` the raw limits; ``hint`` says more; ``tone`` is never the only bearer of a
    meaning."""

    text: str = formatting.DASH
    limits: str = ""
    sort: float | None = None
    low: float | None = None
    high: float | None = None
    hint: str = ""
    tone: Tone = ""

    def __str__(self) -> str:
        return f"{self.text} {self.limits}".rstrip()


REFERENCE = Cell(text="1", limits="(reference)", sort=1.0, hint="is the fastest fp32")
RATIO_DIGITS = 2
COARSE = "~"
COARSE_MEANS = "~: coarse, from the screening alone, one process each"
# Mappings whose keys no column can be named after: each is one cell of JSON.
AS_JSON = ("artifact.coverage.float_reasons", "observed.thread_pools")


@dataclass(frozen=True, kw_only=True)
class ColumnDigits:
    """How many decimals a column has, the same in every row: times, scores, changes of a score. Ratios have two."""

    time: int = 2
    score: int = 2
    change: int = 2


def count_digits(judged: Judged, records: Sequence[Record], unit: float) -> ColumnDigits:
    """Times: three significant digits of the shortest, at most two decimals. Scores: two decimals; in the metric's own
    unit as many as the narrowest limits support."""
    times = [seconds / unit for record in records if (seconds := cases.p50(record))]
    time = min(2, formatting.decimals(Interval(value=min(times)))) if times else 2
    scored = [[read(judged, record) for record in records] for read in (score_of, change_of)]
    score, change = (count_change_digits(judged.metric, changes) for changes in scored)
    return ColumnDigits(time=time, score=score, change=change)


def count_change_digits(
    metric: MetricInfo | None, changes: Sequence[ShownChange | None], *, without_limits: int = 2
) -> int:
    """Two of a share in percent, else as many as the narrowest limits support (``without_limits``: where there are
    none); more where a limit would read like the margin."""
    if metric is None:
        return 2
    limits = [each.interval for each in changes if each is not None and each.interval.low != each.interval.high]
    narrow = max((formatting.decimals(interval, metric.scale) for interval in limits), default=without_limits)
    return count_decimals(changes, metric.scale, 2 if metric.percent else narrow)


@dataclass(frozen=True, kw_only=True)
class CaseRow:
    """A case and what its columns depend on: the fastest fp32 of its setting, the unit of times in seconds, the
    decimals of each column; its run and what was decided in its setting, where that is known."""

    judged: Judged
    record: Record
    best: Record | None = None
    unit: float = 1.0
    digits: ColumnDigits = ColumnDigits()
    decision: Decision | None = None
    run: StoredRun | None = None

    @cached_property
    def stored(self) -> dict[str, Any]:
        """The fields of the record by their dotted names, without nested values: lists are joined, and the mappings of
        ``AS_JSON`` are JSON."""
        folded: dict[str, Any] = {}
        for name, value in flatten(self.record):
            holder = next((key for key in AS_JSON if name.startswith(f"{key}.")), None)
            if holder is not None:
                folded.setdefault(holder, {})[name.removeprefix(f"{holder}.")] = value
            else:
                folded[name] = value
        return {name: _plain(value) for name, value in folded.items()}

    @cached_property
    def fp32(self) -> Record | None:
        """The fp32 on the same runtime."""
        return compare.like_for_like(self.record, self.judged.records)

    @property
    def size_over_fp32(self) -> float | None:
        """Bytes over those of the fp32 on the same runtime."""
        return compare.size_ratio(self.fp32, self.record)

    @property
    def scale(self) -> float:
        """What a stored score is multiplied by."""
        return self.judged.metric.scale if self.judged.metric else 1.0


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False) if value else None
    if isinstance(value, list | tuple):
        return ";".join(json.dumps(item) if isinstance(item, dict) else str(item) for item in value)
    return value


def list_rows(
    judged: Judged, records: Sequence[Record], unit: float, digits: ColumnDigits | None = None
) -> list[CaseRow]:
    """The measured cases of one setting, fp32 first, then the fastest first; ``digits``: None counts them here."""
    measured = [record for record in records if record.status == "ok"]
    best = cases.fastest_fp32(measured)
    measured.sort(key=lambda r: (r.case.mode != "fp32", cases.p50(r) or float("inf"), r.case.id))
    digits = digits or count_digits(judged, measured, unit)
    return [CaseRow(judged=judged, record=record, best=best, unit=unit, digits=digits) for record in measured]


def latency_unit(records: Sequence[Record]) -> tuple[float, str]:
    """One unit for a whole column: that of the smallest p50, so that no value falls below 1 of it."""
    times = [seconds for record in records if (seconds := cases.p50(record)) is not None]
    return formatting.time_unit(min(times)) if times else (1e-3, "ms")


def unit_of(objective: ObjectiveName, values: Sequence[float]) -> tuple[float, str]:
    """One unit for a whole column of seconds or bytes: that of the smallest value."""
    least = min(values)
    return formatting.byte_unit(least) if objective in ("size", "memory") else formatting.time_unit(least)


def time_of(record: Record) -> Interval | None:
    """The median call in seconds with its limits; the mean, without any, where there is no median."""
    latency, seconds = record.latency, cases.p50(record)
    if latency is None or seconds is None:
        return None
    return Interval(value=seconds, low=latency.p50_low, high=latency.p50_high)


def typical_times(record: Record, best: Record | None) -> tuple[float, float] | None:
    """Seconds a call of a case and of the fastest fp32, for want of a paired ratio: p50, or the means that protocol
    sequential compares; None where one has none."""
    typical = cases.mean if cases.is_sequential(record) else cases.p50
    seconds, least = typical(record), None if best is None else typical(best)
    return None if seconds is None or least is None else (seconds, least)


def interval_cell(
    interval: Interval | None, digits: int = RATIO_DIGITS, *, scale: float = 1.0, signed: bool = False
) -> Cell:
    """An estimate with its limits, all with so many decimals; a dash for None."""
    if interval is None:
        return Cell()
    ends = (interval.value, interval.low, interval.high)
    value, low, high = ("" if end is None else formatting.fixed(end * scale, digits, signed=signed) for end in ends)
    limits = f"[{low}, {high}]" if low and high else ""
    return Cell(text=value, limits=limits, sort=interval.value, low=interval.low, high=interval.high)


def ratio_cell(record: Record, ratio: Speedup | Fastest, *, hint: str, toned: bool = True) -> Cell:
    """How many times as fast a case is: good or bad (``toned``) where its limits say so, marked ``COARSE`` where it is
    from the screening alone."""
    cell = interval_cell(Interval(value=ratio.value, low=ratio.low, high=ratio.high))
    tone: Tone = ""
    if ratio.low is not None and ratio.low > 1:
        tone = "good"
    elif ratio.high is not None and ratio.high < 1:
        tone = "bad"
    cell = replace(cell, hint=hint, tone=tone if toned else "")
    return replace(cell, text=f"{cell.text}{COARSE}", hint=f"{hint}; {COARSE_MEANS}") if is_coarse(record) else cell


def count_flips(lost: int, gained: int) -> str:
    """``4 lost, 1 gained``."""
    return f"{lost:,} lost, {gained:,} gained" if lost or gained else "none"


def accuracy_limit(judged: Judged, records: Sequence[Record]) -> str:
    """`` (limit -2.0)``: the greatest loss that the suite allows these cases, in the metric's unit, several where
    overrides give some another; ``, at least 10``: their least score. Empty where it is not known."""
    if judged.bound is None or judged.metric is None:
        return ""
    bounds = judged.bounds_of(records) or {judged.bound}
    if floors := sorted(bound.value for bound in bounds if isinstance(bound, AccuracyFloor)):
        return f", at least {', '.join(f'{floor:g}' for floor in floors)}"
    if holds_against_fp32(judged):
        return ""
    limits = [_write_limit(-margin * judged.metric.sign) for margin in sorted(bound.loss for bound in bounds)]
    return f" (limit{'s' if len(limits) > 1 else ''} {', '.join(limits)})"


def _write_limit(limit: float) -> str:
    digits = max(1, len(f"{abs(limit):g}".partition(".")[2]))
    return formatting.fixed(limit, digits, signed=True)
