"""A run in plain text: the facts behind an answer, the rows of a setting, two runs compared; pure."""

from __future__ import annotations

from collections.abc import Sequence

from qbench import formatting
from qbench.compare.compare import Delta
from qbench.progress.table import TextTable
from qbench.record.schema import Record
from qbench.record.stored_run import QUICK, MetricInfo, RunInfo
from qbench.report import recommendation, table
from qbench.report.recommendation import Answer, Judged
from qbench.stats.interval_type import Interval


def setting_rows(judged: Judged, setting: recommendation.Setting, unit: tuple[float, str]) -> list[table.Row]:
    """The rows of one setting's measured cases."""
    return table.rows(judged, recommendation.of_setting(setting, judged.records), unit)


def setting_name(setting: recommendation.Setting) -> str:
    """``digits-cnn, 1 thread, batch 1``."""
    plural = "" if setting.threads == 1 else "s"
    return f"{setting.model}, {setting.threads} thread{plural}, batch {setting.batch_size}"


def answer_name(setting: recommendation.Setting, info: RunInfo) -> str:
    """The setting that an answer is for; said to be no more than a quick look where it is none."""
    return setting_name(setting) if info.quick is None else f"{QUICK} at {setting_name(setting)}"


def facts(answer: Answer, judged: Judged) -> str:
    """The numbers behind an answer's pick, in one sentence; empty where it has none."""
    record = answer.pick
    if record is None:
        return ""
    seconds = recommendation.p50(record)
    parts = [] if seconds is None else [f"{formatting.duration(seconds)} a call"]
    if (speedup := recommendation.speedup_interval(record)) is not None and record.speedup is not None:
        parts.append(f"{formatting.with_limits(speedup)} times as fast as {_fp32_name(record.speedup.baseline)}")
    parts += _size_part(record, judged) + _accuracy_part(record, judged.metric)
    coverage = record.artifact.coverage if record.artifact else None
    if coverage is not None and coverage.macs_int8 is not None:
        parts.append(f"{formatting.share(coverage.macs_int8)} of its multiply-accumulates in int8")
    return ", ".join(parts) + "." if parts else ""


def _fp32_name(case: str) -> str:
    parts = case.split("/")
    return f"fp32 on {parts[2]}" if len(parts) == 5 else case


def _size_part(record: Record, judged: Judged) -> list[str]:
    ratio = table.rows(judged, [record], (1.0, "s"))[0].cells["ratio"]
    return [] if ratio.sort is None else [f"{formatting.share(ratio.sort, 0)} of its size"]


def _accuracy_part(record: Record, metric: MetricInfo | None) -> list[str]:
    if record.accuracy is None or record.accuracy.delta is None or metric is None:
        return []
    if metric.against == "fp32":  # how near it is to fp32 says more than how far it is from being fp32
        score = record.accuracy
        near = Interval(value=score.value, low=score.low, high=score.high)
        shown = formatting.with_limits(near, scale=metric.scale, least=metric.least)
        return [f"{metric.name} {shown} {'%' if metric.percent else metric.own_unit}".rstrip()]
    change = formatting.with_limits(record.accuracy.delta, scale=metric.scale, signed=True, least=metric.least)
    return [f"{metric.name} {change} {metric.unit}".rstrip()]


def comparison(deltas: Sequence[Delta], metric: MetricInfo | None) -> TextTable:
    """One row per case of two runs: slowdown, size, accuracy, and what limits them."""
    columns = ("case", "change", "time", "size", "accuracy", "notes")
    return TextTable(columns=columns, rows=tuple(_delta_row(delta, metric) for delta in deltas), words=(0, 1, 5))


def _delta_row(delta: Delta, metric: MetricInfo | None) -> tuple[str, ...]:
    scale, unit, least = (metric.scale, metric.unit, metric.least) if metric else (1.0, "", 0)
    time = formatting.DASH
    if (slow := delta.slowdown) is not None:
        low, high = (None if limit is None else limit - 1 for limit in (slow.low, slow.high))
        change = Interval(value=slow.value - 1, low=low, high=high)
        number, limits = (make(change, scale=100, signed=True) for make in (formatting.number, formatting.limits))
        time = f"{number} % {limits}".rstrip()
    size = (
        formatting.DASH
        if delta.size_ratio is None
        else f"{formatting.fixed((delta.size_ratio - 1) * 100, 1, signed=True)} %"
    )
    accuracy = formatting.DASH
    if delta.accuracy is not None:
        accuracy = f"{formatting.with_limits(delta.accuracy, scale=scale, signed=True, least=least)} {unit}".rstrip()
    return formatting.clean(delta.case), delta.change, time, size, accuracy, formatting.clean("; ".join(delta.notes))


def as_markdown(content: TextTable) -> str:
    """The table in Markdown, every cell escaped."""
    lines = [content.columns, *content.rows]
    drawn = ["| " + " | ".join(formatting.markdown(text) for text in line) + " |" for line in lines]
    rule = ("---" if index in content.words else "---:" for index in range(len(content.columns)))
    drawn.insert(1, f"|{'|'.join(rule)}|")
    return "\n".join(drawn)
