"""Where the time of a case goes, and what its layers cost in accuracy, as tables for a terminal; pure."""

from __future__ import annotations

from qbench import formatting
from qbench.explain.error_trials import Evaluated
from qbench.explain.explanation import Explanation
from qbench.explain.text import show_removed
from qbench.explain.where_time_goes import LayerTime, TimeShares
from qbench.progress.table import TextTable
from qbench.record.stored_run import MetricInfo

LONGEST_LAYERS = 10


def make_kind_table(times: TimeShares) -> TextTable:
    """Seconds by kind of work, in the case and in its fp32."""
    rows: list[tuple[str, ...]] = [
        (kind, formatting.duration(int8), formatting.share(int8 / times.case.call_seconds), formatting.duration(fp32))
        for kind, int8, fp32 in times.kinds()
    ]
    int8, fp32 = times.case.overhead_seconds, times.fp32.overhead_seconds
    share = "" if int8 is None else formatting.share(int8 / times.case.call_seconds)
    rows.append(("beside the nodes", _or_unknown(int8), share, _or_unknown(fp32)))
    rows.append(
        (
            "a call",
            formatting.duration(times.case.call_seconds),
            "",
            formatting.duration(times.fp32.call_seconds),
        )
    )
    return TextTable(columns=("where the time goes", "int8", "of the call", "fp32"), rows=tuple(rows))


def _or_unknown(seconds: float | None) -> str:
    return "less than watching costs" if seconds is None else formatting.duration(seconds)


def make_time_table(times: TimeShares) -> TextTable:
    """The layers that take longest."""
    return TextTable(
        columns=("layer", "operator", "kind", "int8", "fp32", "of the peak"),
        rows=tuple(_layer_row(layer) for layer in times.layers[:LONGEST_LAYERS]),
        words=(0, 1, 2),
    )


def _layer_row(layer: LayerTime) -> tuple[str, ...]:
    return (
        formatting.one_line(layer.name),
        formatting.one_line(layer.operator),
        layer.kind,
        formatting.duration(layer.int8_seconds),
        "" if layer.fp32_seconds is None else formatting.duration(layer.fp32_seconds),
        "" if layer.peak_fraction is None else formatting.share(layer.peak_fraction),
    )


def make_error_table(explanation: Explanation[Evaluated], metric: MetricInfo) -> TextTable:
    """The layers that were returned to float: what each takes away alone, and with those above it."""
    rows = [
        (
            layer.trial.counterfactual.part,
            show_removed(layer.trial),
            formatting.share(layer.together),
            formatting.DASH if (change := layer.trial.metric_change) is None else metric.show_change(change),
        )
        for layer in explanation.layers
    ]
    return TextTable(columns=("layer in float", "error gone", "with those above", metric.name), rows=tuple(rows))
