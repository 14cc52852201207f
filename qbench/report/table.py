"""Records as tables: ``frame`` with raw values in SI units, ``presentation`` as a reader sees them."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from qbench import formatting
from qbench.compare import compare, host_share, int8_share
from qbench.compare import text as compare_text
from qbench.compare.speedup_doubt import is_coarse
from qbench.decide import cases
from qbench.decide.judged import Judged
from qbench.decide.objective import VALUES
from qbench.record import schema
from qbench.record.schema import Record, TwinChange
from qbench.stats import mcnemar
from qbench.stats.interval_type import Interval
from qbench.suite.settings import Objective

if TYPE_CHECKING:
    import pandas as pd

Tone = Literal["", "good", "bad", "unsure", "muted"]


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row per case; dotted columns such as ``latency.p50_seconds``, in the record's order, units in the names.

    The columns of the record's own fields are always there; those of free mappings (``recipe``, ``observed``,
    ``elapsed_seconds``) as the records have them. What was not measured is None.
    """
    import pandas as pd

    rows = [dict(schema.flatten(record)) for record in records]
    fixed = list(_columns(Record, ""))
    free = sorted({key for row in rows for key in row} - set(fixed) - _parents(fixed) - set(_mappings(Record)))
    columns = fixed + free
    return pd.DataFrame([{name: _plain(row.get(name)) for name in columns} for row in rows], columns=columns)


def _columns(kind: type, prefix: str) -> Iterator[str]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        nested = _dataclass_of(hints[field.name])
        if nested is not None:
            yield from _columns(nested, f"{prefix}{field.name}.")
        elif f"{prefix}{field.name}" not in _mappings(Record):
            yield f"{prefix}{field.name}"


def _dataclass_of(hint: Any) -> Any:
    """``X`` of ``X`` or ``X | None`` where X is a dataclass."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next((option for option in options if dataclasses.is_dataclass(option)), None)


def _mappings(kind: type) -> tuple[str, ...]:
    hints = typing.get_type_hints(kind)
    return tuple(field.name for field in dataclasses.fields(kind) if "dict" in str(hints[field.name]))


def _parents(columns: Sequence[str]) -> set[str]:
    return {".".join(column.split(".")[:depth]) for column in columns for depth in range(1, column.count(".") + 1)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return json.dumps(value)
    if not isinstance(value, list | tuple):
        return value
    return ";".join(json.dumps(item) if isinstance(item, dict) else str(item) for item in value)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What stands in one cell: ``text`` with ``limits`` under or behind it; ``sort`` orders the column (None last);
    ``hint`` says more; ``tone`` is never the only bearer of a meaning."""

    text: str = formatting.DASH
    limits: str = ""
    sort: float | None = None
    hint: str = ""
    tone: Tone = ""

    def __str__(self) -> str:
        return f"{self.text} {self.limits}".rstrip()


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


COARSE = "~"
COARSE_MEANS = "~: coarse, from the screening alone, one process each"
_JUDGED = (
    "is accuracy worse than fp32's by less than the margin? one-sided 5 % test of each case alone; where it cannot "
    "tell, about how many examples would decide"
)


_TWIN = (
    "paired change of a qat case against its fp32 twin, the same network with the same training but without fake "
    "quantization: what int8 itself costs"
)


def columns(judged: Judged, unit: str) -> tuple[Column, ...]:
    """The columns of the presentation; ``unit`` is that of the latencies."""
    metric = judged.metric.name if judged.metric else "accuracy"
    own = f", {judged.metric.own_unit}" if judged.metric and judged.metric.own_unit else ""
    percent = ", %" if judged.metric is None or judged.metric.percent else own
    unit_of = f", {judged.metric.unit}" if judged.metric and judged.metric.unit else ""
    seeds = (Column(key="seeds", title="by seed", hint=f"{metric} by the seed that drew the calibration examples"),)
    twins = (Column(key="twin", title=f"vs fp32 twin{unit_of}", hint=_TWIN),)
    return (
        *_minimized_column(judged),
        Column(key="p50", title=f"p50, {unit}", hint="median closed-loop service time of one call, 95 % limits"),
        Column(key="p90", title=f"p90, {unit}", hint="nine calls in ten are at least this fast"),
        Column(key="speedup", title="speed-up", hint="like-for-like fp32 time over this case's, 95 % limits"),
        Column(key="best", title="vs fastest fp32", hint="time of the fastest fp32 of any backend over this case's"),
        Column(key="control", title="control (A/A)", hint="a second copy of the fp32, measured alike; 1 is true"),
        Column(key="size", title="size", hint="exact bytes of what is shipped"),
        Column(key="ratio", title="size ratio", hint="bytes over those of the like-for-like fp32"),
        Column(key="accuracy", title=f"{metric}{percent}", hint=f"{metric} on the evaluation examples, 95 % limits"),
        *(seeds if judged.seed_spreads else ()),
        Column(key="delta", title=f"change{unit_of}", hint="paired change against the like-for-like fp32"),
        *(twins if any(_twin_change(record) for record in judged.records) else ()),
        Column(key="flips", title="flips", hint="right to wrong / wrong to right; McNemar's mid-p of no change"),
        Column(key="coverage", title="coverage", hint="share of multiply-accumulates that run in int8"),
        Column(key="judged", title="within margin", hint=_JUDGED),
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


def _minimized_cell(judged: Judged, record: Record) -> Cell:
    value = VALUES[judged.decide.minimize](record)
    if value is None:
        return Cell()
    shown = formatting.size(value) if judged.decide.minimize in ("size", "memory") else formatting.duration(value)
    return Cell(text=shown, sort=value)


def unit_of(objective: Objective, values: Sequence[float]) -> tuple[float, str]:
    """One unit for a whole column of seconds or bytes: that of the smallest value."""
    least = min(values)
    return formatting.byte_unit(least) if objective in ("size", "memory") else formatting.time_unit(least)


def latency_unit(records: Sequence[Record]) -> tuple[float, str]:
    """One unit for a whole column: that of the smallest p50, so that no value falls below 1 of it."""
    times = [seconds for record in records if (seconds := cases.p50(record)) is not None]
    return formatting.time_unit(min(times)) if times else (1e-3, "ms")


def rows(judged: Judged, records: Sequence[Record], unit: tuple[float, str]) -> list[Row]:
    """The measured cases, fp32 first, then the fastest first."""
    measured = [record for record in records if record.status == "ok"]
    best = cases.fastest_fp32(measured)
    measured.sort(key=lambda r: (r.case.mode != "fp32", cases.p50(r) or float("inf"), r.case.id))
    return [Row(record=record, cells=_cells(judged, record, best, unit[0])) for record in measured]


def _cells(judged: Judged, record: Record, best: Record | None, unit: float) -> dict[str, Cell]:
    fp32 = compare.like_for_like(record, judged.records)
    return {
        "minimized": _minimized_cell(judged, record),
        **_latency_cells(record, unit),
        "best": _against_best(record, best),
        **_size_cells(record, fp32),
        **_accuracy_cells(judged, record),
        "twin": _twin_cell(judged, record),
        "seeds": _seeds_cell(judged, record),
        "coverage": _coverage_cell(record),
        "judged": _judged_cell(judged, record),
    }


def _latency_cells(record: Record, unit: float) -> dict[str, Cell]:
    latency, speedup = record.latency, record.speedup
    cells = {"p50": Cell(), "p90": Cell(), "speedup": Cell(), "control": Cell()}
    if latency is not None and latency.p50_seconds is not None:
        p50 = Interval(value=latency.p50_seconds, low=latency.p50_low, high=latency.p50_high)
        cells["p50"] = replace(_interval_cell(p50, scale=1 / unit), hint=host_share.describe(record) or "")
    if latency is not None and latency.p90_seconds is not None:
        text = formatting.number(Interval(value=latency.p90_seconds), scale=1 / unit)
        cells["p90"] = Cell(text=text, sort=latency.p90_seconds)
    if speedup is not None:
        ratio = Interval(value=speedup.value, low=speedup.low, high=speedup.high)
        hint = f"{speedup.protocol}, {speedup.processes} process(es), against {speedup.baseline}"
        cells["speedup"] = _mark_coarse(
            dataclasses.replace(_interval_cell(ratio), hint=hint, tone=_side(ratio)), record
        )
        cells["control"] = _control_cell(speedup.control)
    return cells


def _mark_coarse(cell: Cell, record: Record) -> Cell:
    """A ratio of the screening alone carries ``COARSE``."""
    if not is_coarse(record) or not cell.text:
        return cell
    return dataclasses.replace(cell, text=f"{cell.text}{COARSE}", hint=f"{cell.hint}; {COARSE_MEANS}")


def _side(speedup: Interval) -> Tone:
    if speedup.low is not None and speedup.low > 1:
        return "good"
    return "bad" if speedup.high is not None and speedup.high < 1 else ""


def _control_cell(control: Interval | None) -> Cell:
    if control is None:
        return Cell()
    cell = _interval_cell(control)
    off = control.low is not None and control.high is not None and not control.low <= 1 <= control.high
    return dataclasses.replace(cell, tone="unsure", hint="1 is outside: biased by noise") if off else cell


def _interval_cell(interval: Interval, *, scale: float = 1.0, signed: bool = False, least: int = 0) -> Cell:
    return Cell(
        text=formatting.number(interval, scale=scale, signed=signed, least=least),
        limits=formatting.limits(interval, scale=scale, signed=signed, least=least),
        sort=interval.value,
    )


def _against_best(record: Record, best: Record | None) -> Cell:
    """Measured in one group where the record says so; else (older records) from the two p50."""
    if (fastest := record.speedup_fastest) is not None:
        if fastest.baseline == record.case.id:
            return Cell(hint="is the fastest fp32")
        ratio = Interval(value=fastest.value, low=fastest.low, high=fastest.high)
        tone = _side(ratio) if cases.is_int8(record) else ""
        cell = dataclasses.replace(_interval_cell(ratio), hint=f"against {fastest.baseline}", tone=tone)
        return _mark_coarse(cell, record)
    typical = cases.mean if cases.is_sequential(record) else cases.p50
    own, full = typical(record), None if best is None else typical(best)
    if own is None or full is None or record is best:
        return Cell(hint="is the fastest fp32") if record is best else Cell()
    slower: Tone = "bad" if own > full and cases.is_int8(record) else ""
    return Cell(text=f"{full / own:.2f}", sort=full / own, tone=slower)


def _size_cells(record: Record, fp32: Record | None) -> dict[str, Cell]:
    if record.artifact is None:
        return {"size": Cell(), "ratio": Cell()}
    own = record.artifact.size_bytes
    cells = {"size": Cell(text=formatting.size(own), sort=own, hint=f"{own:,} bytes"), "ratio": Cell()}
    if fp32 is not None and fp32 is not record and fp32.artifact is not None and fp32.artifact.size_bytes:
        ratio = own / fp32.artifact.size_bytes
        cells["ratio"] = Cell(text=f"{ratio:.3f}", sort=ratio)
    return cells


def _accuracy_cells(judged: Judged, record: Record) -> dict[str, Cell]:
    cells = {"accuracy": Cell(), "delta": Cell(), "flips": Cell()}
    scores = record.accuracy
    if scores is None:
        return cells
    scale, least = (judged.metric.scale, judged.metric.least) if judged.metric else (1.0, 0)
    value = Interval(value=scores.value, low=scores.low, high=scores.high)
    cells["accuracy"] = dataclasses.replace(
        _interval_cell(value, scale=scale, least=least),
        hint=f"{scores.n:,} examples" + (f"; limits: {scores.interval}" if scores.interval else ""),
    )
    if scores.delta is not None:
        cells["delta"] = _interval_cell(scores.delta, scale=scale, signed=True, least=least)
    if scores.flips is not None:
        harmful, beneficial = scores.flips.harmful, scores.flips.beneficial
        p = compare_text.p_value(mcnemar.midp(harmful, beneficial))
        hint = f"{harmful} right to wrong, {beneficial} wrong to right; McNemar's test of no change: mid-{p}"
        cells["flips"] = Cell(text=f"{harmful} / {beneficial}", limits=p, sort=harmful, hint=hint)
    return cells


def _twin_change(record: Record) -> TwinChange | None:
    return None if record.accuracy is None else record.accuracy.twin


def _twin_cell(judged: Judged, record: Record) -> Cell:
    twin = _twin_change(record)
    if twin is None or twin.delta is None:
        return Cell()
    scale, least = (judged.metric.scale, judged.metric.least) if judged.metric else (1.0, 0)
    hint = f"against {twin.baseline}"
    if twin.flips is not None:
        hint += f"; {twin.flips.harmful} right to wrong, {twin.flips.beneficial} wrong to right"
    return dataclasses.replace(_interval_cell(twin.delta, scale=scale, signed=True, least=least), hint=hint)


def _seeds_cell(judged: Judged, record: Record) -> Cell:
    spread = judged.seed_spreads.get(record.case.id)
    if spread is None or judged.metric is None:
        return Cell()
    scale, places = judged.metric.scale, 1 if judged.metric.percent else 4
    low, high = (formatting.fixed(value * scale, places) for value in (min(spread.values), max(spread.values)))
    worst = spread.test.outcome if spread.test else "not judged"
    tone: Tone = "unsure" if judged.outcome(record) == "PASS" and worst not in ("PASS", "not judged") else ""
    hint = f"the worst of {len(spread.values)} seeds, {spread.worst}: {worst}"
    return Cell(text=f"{low} to {high}", sort=spread.spread, hint=hint, tone=tone)


def _coverage_cell(record: Record) -> Cell:
    coverage = record.artifact.coverage if record.artifact else None
    if coverage is None:
        return Cell()
    layers = f"{coverage.layers_int8} of {coverage.layers_total} layers"
    if coverage.macs_int8 is None:
        return Cell(text="not known", hint=coverage.unknown or layers, tone="unsure")
    tone: Tone = "bad" if coverage.macs_int8 == 0 else ""
    label = ""
    if (why := int8_share.explain_fp32_in_effect(record)) is not None:
        layers, tone, label = f"{layers}; {why}", "bad", int8_share.FP32_IN_EFFECT
    text = formatting.share(coverage.macs_int8)
    return Cell(text=text, limits=label, sort=coverage.macs_int8, hint=layers, tone=tone)


def _judged_cell(judged: Judged, record: Record) -> Cell:
    if not cases.is_int8(record):
        return Cell()
    if (why := int8_share.explain_fp32_in_effect(record)) is not None:
        return Cell(text="no candidate", tone="muted", sort=0, hint=f"{int8_share.FP32_IN_EFFECT}: {why}")
    test = judged.tests.get(record.case.id)
    if test is None:
        return Cell(text="not judged", tone="muted", sort=0)
    tones: dict[str, tuple[Tone, float]] = {"PASS": ("good", 3), "INCONCLUSIVE": ("unsure", 2), "FAIL": ("bad", 1)}
    tone, order = tones[test.outcome]
    needed = compare_text.would_decide(test, record.accuracy.n) if record.accuracy else None
    hint = f"{needed} would decide, if the change stays as it is" if needed else ""
    return Cell(text=test.outcome, limits=needed or "", tone=tone, sort=order, hint=hint)


def presentation(judged: Judged, render: Callable[[Cell], str] = str) -> pd.DataFrame:
    """What a reader sees, one row per measured case, indexed by case id: text with limits, titles as columns."""
    import pandas as pd

    unit = latency_unit(judged.records)
    titles = columns(judged, unit[1])
    shown = [row for setting in cases.settings(judged.records) for row in rows(judged, _of(judged, setting), unit)]
    return pd.DataFrame(
        [[render(row.cells[column.key]) for column in titles] for row in shown],
        columns=[column.title for column in titles],
        index=pd.Index([row.record.case.id for row in shown], name="case", dtype=object),
    )


def _of(judged: Judged, setting: cases.Setting) -> list[Record]:
    return cases.of_setting(setting, judged.records)
