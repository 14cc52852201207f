"""A run in plain text: the facts behind an answer, the rows of a setting, two runs compared; pure."""

from __future__ import annotations

from collections.abc import Sequence

from qbench import formatting
from qbench.compare.changes import CaseChange
from qbench.decide import cases
from qbench.progress.table import TextTable
from qbench.record.stored_run import QUICK, MetricInfo, RunInfo
from qbench.stats.interval_type import Interval


def setting_name(setting: cases.Setting) -> str:
    """``digits-cnn, 1 thread, batch 1``."""
    return cases.setting_name(setting)


def answer_name(setting: cases.Setting, info: RunInfo) -> str:
    """The setting that an answer is for; said to be no more than a quick look where it is none."""
    return setting_name(setting) if info.quick is None else f"{QUICK} at {setting_name(setting)}"


def comparison(changes: Sequence[CaseChange], metric: MetricInfo | None) -> TextTable:
    """One row per case of two runs: what is shown to have changed, slowdown, accuracy, size, and what limits them."""
    columns = ("case", "verdict", "time", "accuracy", "size", "notes")
    return TextTable(columns=columns, rows=tuple(_change_row(change, metric) for change in changes), words=(0, 1, 5))


def _change_row(change: CaseChange, metric: MetricInfo | None) -> tuple[str, ...]:
    delta = change.delta
    why = delta.contender.reason if delta.contender is not None and delta.change.startswith("now") else None
    notes = (*delta.notes, why) if why else delta.notes
    scale, unit, least = (metric.scale, metric.unit, metric.least) if metric else (1.0, "", 0)
    time = formatting.DASH
    if (slow := delta.slowdown) is not None:
        low, high = (None if limit is None else limit - 1 for limit in (slow.low, slow.high))
        slowdown = Interval(value=slow.value - 1, low=low, high=high)
        number, limits = (make(slowdown, scale=100, signed=True) for make in (formatting.number, formatting.limits))
        time = f"{number} % {limits}".rstrip()
    size = (
        formatting.DASH
        if delta.size_ratio is None
        else f"{formatting.fixed((delta.size_ratio - 1) * 100, 1, signed=True)} %"
    )
    accuracy = formatting.DASH
    if delta.accuracy is not None:
        accuracy = f"{formatting.with_limits(delta.accuracy, scale=scale, signed=True, least=least)} {unit}".rstrip()
    return formatting.clean(delta.case), change.verdict, time, accuracy, size, formatting.clean("; ".join(notes))
