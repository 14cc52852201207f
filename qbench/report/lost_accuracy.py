"""Why not right: what ``qbench explain`` confirmed of cases that lose accuracy, the largest gain first."""

from __future__ import annotations

from dataclasses import dataclass

from qbench import formatting
from qbench.decide.judged import Judged
from qbench.progress.table import TextTable
from qbench.record.explained_accuracy import ExplainedAccuracy, read_accuracy
from qbench.record.run_files import Damaged
from qbench.record.stored_run import MetricInfo, StoredRun
from qbench.stats.interval_type import Interval


@dataclass(frozen=True, kw_only=True)
class LostAccuracy:
    """The section: ``causes`` and ``layers`` as tables, a sentence for each case, and what to write into the suite."""

    causes: TextTable
    layers: TextTable
    sentences: tuple[str, ...] = ()
    advice: tuple[tuple[str, str], ...] = ()


def list_lost(run: StoredRun, judged: Judged) -> LostAccuracy:
    """What the run's folder holds of cases that are not shown to be accurate enough; where that cannot be read, a
    sentence that says why."""
    try:
        explained = read_accuracy(run.folder)
    except Damaged as error:
        return make_section((), MetricInfo(name=""), damage=str(error))
    metric = run.info.metric
    cases = tuple(
        case
        for case in explained
        if case.case in run.by_id and judged.outcome(run.by_id[case.case]) != "PASS"
    )  # fmt: skip
    return make_section(cases, metric or MetricInfo(name=""))


def make_section(cases: tuple[ExplainedAccuracy, ...], metric: MetricInfo, damage: str | None = None) -> LostAccuracy:
    """The section of these cases."""
    sentences = [] if damage is None else [damage]
    return LostAccuracy(
        causes=_list_causes(cases, metric),
        layers=_list_layers(cases, metric),
        sentences=(*sentences, *(_describe(case, metric) for case in cases)),
        advice=tuple((_name_advice(case, metric), case.suite) for case in cases if case.suite),
    )


def _list_causes(cases: tuple[ExplainedAccuracy, ...], metric: MetricInfo) -> TextTable:
    """A row for each confirmed cause, ordered by what taking it away adds to the metric, then by the error gone."""
    causes = sorted(
        ((case, cause) for case in cases for cause in case.causes),
        key=lambda pair: (-_gain(pair[1].metric_change, metric), -pair[1].removed.value),
    )
    rows = tuple(
        (
            case.case,
            _show_change(cause.metric_change, metric),
            f"{formatting.with_limits(cause.removed, scale=100.0)} %",
            formatting.one_line(cause.title),
            formatting.one_line(cause.change),
        )
        for case, cause in causes
    )
    columns = ("case", metric.name, "error gone", "what costs accuracy", "avoided by")
    return TextTable(columns=columns, rows=rows, words=(0, 3, 4))


def _list_layers(cases: tuple[ExplainedAccuracy, ...], metric: MetricInfo) -> TextTable:
    """A row for each layer that was returned to float, of each case the one that takes most error away first."""
    rows = tuple(
        (
            case.case,
            formatting.one_line(layer.name),
            f"{formatting.with_limits(layer.removed, scale=100.0)} %",
            formatting.DASH if layer.together is None else formatting.share(layer.together),
            _show_change(layer.metric_change, metric),
        )
        for case in cases
        for layer in case.layers
    )
    columns = ("case", "layer in float", "error gone", "with those above", metric.name)
    return TextTable(columns=columns, rows=rows, words=(0, 1))


def _name_advice(case: ExplainedAccuracy, metric: MetricInfo) -> str:
    gain = "" if case.metric_change is None else f": {metric.name} {_show_change(case.metric_change, metric)}"
    return f"{case.case}{gain}"


def _gain(change: Interval | None, metric: MetricInfo) -> float:
    return float("-inf") if change is None else metric.sign * change.value


def _show_change(change: Interval | None, metric: MetricInfo) -> str:
    if change is None:
        return formatting.DASH
    shown = formatting.with_limits(change, scale=metric.scale, signed=True, least=metric.least)
    return f"{shown} {metric.unit}".rstrip()


def _describe(case: ExplainedAccuracy, metric: MetricInfo) -> str:
    noise = "the same outputs as fp32" if case.sqnr_db is None else f"{case.sqnr_db:.1f} dB signal to noise"
    parts = [f"{case.case}: on {case.n:,} examples {noise} against fp32"]
    if case.against_fp32 is not None:
        parts.append(f"{metric.name} {_show_change(case.against_fp32, metric)}")
    if not case.causes:
        return f"{', '.join(parts)}; no change that was tried takes error away."
    sentence = ", ".join(parts)
    if case.left is not None:
        sentence = f"{sentence}; {formatting.share(max(0.0, case.left))} of the error is not explained"
    return f"{sentence}." if case.note is None else f"{sentence}. {formatting.one_line(case.note)}"
