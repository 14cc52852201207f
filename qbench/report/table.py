"""Records as a table that a reader sees: columns, rows and cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.decide import cases
from qbench.decide.judged import Judged
from qbench.decide.tested_change import describe_levels
from qbench.record.schema import Record
from qbench.report.cells import Cell, Digits, count_digits, draw_cells, twin_change
from qbench.suite.settings import Objective


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: its key, title, and what it means."""

    key: str
    title: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case with its cells by column key."""

    record: Record
    cells: Mapping[str, Cell]


_JUDGED = (
    "does it lose less accuracy than the limit? One-sided 5 % test of each case alone; where it cannot tell, about how "
    "many examples would decide"
)
_TWIN = (
    "paired change of a qat case against its fp32 twin, the same network with the same training but without fake "
    "quantization: what int8 itself costs"
)


def columns(judged: Judged, unit: str) -> tuple[Column, ...]:
    """The columns; ``unit`` is that of the latencies."""
    metric = judged.metric.name if judged.metric else "accuracy"
    own = f", {judged.metric.own_unit}" if judged.metric and judged.metric.own_unit else ""
    percent = ", %" if judged.metric is None or judged.metric.percent else own
    unit_of = f", {judged.metric.unit}" if judged.metric and judged.metric.unit else ""
    seeds = (Column(key="seeds", title="by seed", hint=f"{metric} by the seed that drew the calibration examples"),)
    twins = (Column(key="twin", title=f"against fp32 twin{unit_of}", hint=_TWIN),)
    return (
        *_minimized_column(judged),
        Column(key="p50", title=f"time, {unit}", hint="half of all calls take at most this long (p50)"),
        Column(key="p90", title=f"9 in 10, {unit}", hint="nine calls in ten take at most this long (p90)"),
        Column(
            key="best",
            title="times the best fp32",
            hint="how many times as fast as the fastest fp32 of any backend; below 1 it is slower than plain fp32",
        ),
        Column(
            key="speedup",
            title="times its own fp32",
            hint="how many times as fast as fp32 on the same runtime (like for like)",
        ),
        Column(
            key="control",
            title="noise check",
            hint="fp32 against fp32 (A/A): a second copy of the baseline, measured alike; the true answer is 1",
        ),
        Column(key="size", title="size", hint="exact bytes of what is shipped"),
        Column(key="ratio", title="of fp32", hint="bytes over those of fp32 on the same runtime"),
        Column(key="accuracy", title=f"{metric}{percent}", hint=f"{metric} on the evaluation examples"),
        *(seeds if judged.seed_spreads else ()),
        Column(
            key="delta",
            title=f"accuracy change{unit_of}",
            hint=f"change of {metric} against fp32 on the same runtime, the same examples (paired); in brackets "
            f"{describe_levels(judged, judged.records)}",
        ),
        *(twins if any(twin_change(record) for record in judged.records) else ()),
        Column(
            key="flips",
            title="examples",
            hint="lost: fp32 right, int8 wrong; gained: the other way round; p is McNemar's mid-p of no change",
        ),
        Column(
            key="coverage",
            title="work done in int8",
            hint="the share of multiply-accumulates that really run in int8 (coverage), read from the artifact",
        ),
        Column(key="judged", title="accuracy limit", hint=_JUDGED),
    )


MINIMIZED = {"size": "bytes", "cold_start": "cold start", "memory": "memory"}
_MINIMIZED_MEANS = {
    "cold_start": "from nothing loaded to the first answer: loading and the first call",
    "memory": "the largest resident set of the measuring process",
}


def _minimized_column(judged: Judged) -> tuple[Column, ...]:
    """What the decision minimizes, where no other column has it."""
    objective = judged.decide.minimize
    if objective not in _MINIMIZED_MEANS:
        return ()
    return (
        Column(key="minimized", title=MINIMIZED[objective], hint=f"what is minimized: {_MINIMIZED_MEANS[objective]}"),
    )


def unit_of(objective: Objective, values: Sequence[float]) -> tuple[float, str]:
    """One unit for a whole column of seconds or bytes: that of the smallest value."""
    least = min(values)
    return formatting.byte_unit(least) if objective in ("size", "memory") else formatting.time_unit(least)


def latency_unit(records: Sequence[Record]) -> tuple[float, str]:
    """One unit for a whole column: that of the smallest p50, so that no value falls below 1 of it."""
    times = [seconds for record in records if (seconds := cases.p50(record)) is not None]
    return formatting.time_unit(min(times)) if times else (1e-3, "ms")


def rows(judged: Judged, records: Sequence[Record], unit: tuple[float, str], digits: Digits | None = None) -> list[Row]:
    """The measured cases of one setting, fp32 first, then the fastest first; ``digits``: null counts them here."""
    measured = [record for record in records if record.status == "ok"]
    best = cases.fastest_fp32(measured)
    measured.sort(key=lambda r: (r.case.mode != "fp32", cases.p50(r) or float("inf"), r.case.id))
    digits = digits or count_digits(judged, measured, unit[0])
    return [Row(record=record, cells=draw_cells(judged, record, best, unit[0], digits)) for record in measured]
