"""Why not faster, and why not right: what ``qbench explain`` confirmed, the largest saving first."""

from __future__ import annotations

from dataclasses import dataclass

from qbench import formatting
from qbench.compare import host_share
from qbench.decide.judged import Judged
from qbench.errors import first_names
from qbench.progress.table import TextTable
from qbench.record.explained import ErrorFigures, ExplainedCase, ExplainedCause, Figures, TimeFigures, read_explained
from qbench.record.run_files import DamagedFile
from qbench.record.stored_run import MetricInfo, StoredRun
from qbench.stats.interval_type import Interval

NAMED = 4  # overlapping causes of a sentence
SLOW_COLUMNS = ("case", "saves", "times as fast", "of the gap", "what makes it slow", "avoided by")


@dataclass(frozen=True, kw_only=True)
class ExplainedSection:
    """``causes`` as a table, a sentence for each case, what to write into the suite or to set for the process, by its
    title; and of lost accuracy ``layers`` as a table."""

    causes: TextTable
    sentences: tuple[str, ...]
    advice: tuple[tuple[str, str], ...]
    layers: TextTable | None = None


def list_slow(run: StoredRun) -> ExplainedSection:
    """Why cases of the run are not faster, by what its folder holds."""
    cases, damage = _read_cases(run, TimeFigures)
    texts = (
        (case.case, "\n".join([*([case.suite] if case.suite else []), *case.figures.environment])) for case in cases
    )
    return ExplainedSection(
        causes=_list_slow_causes(cases),
        sentences=(*damage, *(_describe_slow(case) for case in cases)),
        advice=tuple((title, text) for title, text in texts if text),
    )


def list_lost(run: StoredRun, judged: Judged) -> ExplainedSection:
    """Why cases of the run that are not shown to be accurate enough lose accuracy, by what its folder holds."""
    explained, damage = _read_cases(run, ErrorFigures)
    metric = run.info.metric or MetricInfo(name="")
    cases = tuple(case for case in explained if judged.outcome(run.by_id[case.case]) != "PASS")
    return ExplainedSection(
        causes=_list_loss_causes(cases, metric),
        sentences=(*damage, *(_describe_loss(case, metric) for case in cases)),
        advice=tuple((_name_advice(case, metric), case.suite) for case in cases if case.suite),
        layers=_list_layers(cases, metric),
    )


def _read_cases(run: StoredRun, kind: type[Figures]) -> tuple[tuple[ExplainedCase[Figures], ...], tuple[str, ...]]:
    """The explained cases that the run has; where their file cannot be read, none and a sentence that says why."""
    try:
        explained = read_explained(run.folder, kind)
    except DamagedFile as error:
        return (), (str(error),)
    return tuple(case for case in explained if case.case in run.by_id), ()


def _list_slow_causes(cases: tuple[ExplainedCase[TimeFigures], ...]) -> TextTable:
    """A row for each confirmed cause, ordered by the seconds that it saves for one example."""
    causes = sorted(((case, cause) for case in cases for cause in case.causes), key=lambda pair: -_seconds(pair[1]))
    rows = tuple(
        (
            case.case,
            formatting.duration(max(0.0, _seconds(cause))),
            formatting.with_limits(cause.saving),
            formatting.DASH if cause.share is None else formatting.share(max(0.0, cause.share)),
            formatting.one_line(cause.title),
            formatting.one_line(cause.change),
        )
        for case, cause in causes
    )
    return TextTable(columns=SLOW_COLUMNS, rows=rows, words=(0, 4, 5))


def _seconds(cause: ExplainedCause) -> float:
    return cause.seconds or 0.0


def _describe_slow(case: ExplainedCase[TimeFigures]) -> str:
    """Its gap, what stays unexplained, and what the advice changes in accuracy."""
    figures = case.figures
    gap = figures.seconds - figures.best_seconds
    ratio = "" if figures.over_fp32 is None else f", {formatting.with_limits(figures.over_fp32)} times what fp32 takes"
    clauses = [f"{case.case}: {formatting.duration(figures.seconds)} for one example{ratio}"]
    if gap > 0:
        best = formatting.duration(figures.best_seconds)
        clauses.append(f"it could take {best} ({formatting.one_line(figures.best)})")
    if not case.causes:
        clauses.append("no cause that was tried makes it slower")
    elif case.unexplained is not None and gap > 0:
        clauses.append(f"{formatting.share(max(0.0, case.unexplained))} of the gap is not explained")
    if figures.overlapping:
        clauses.append(f"alone, but not beyond these, gain {_name_overlapping(figures)}")
    if figures.off_core is not None and figures.off_core >= host_share.OFF_CORE:
        clauses.append(host_share.describe_off_core([figures.off_core], "meanwhile"))
    sentence = f"{'; '.join(clauses)}."
    return sentence if case.note is None else f"{sentence} {formatting.one_line(case.note)}"


def _name_overlapping(figures: TimeFigures) -> str:
    names = (f"{each.change}: {formatting.with_limits(each.saving)} times as fast" for each in figures.overlapping)
    return first_names([formatting.one_line(name) for name in names], NAMED)


def _list_loss_causes(cases: tuple[ExplainedCase[ErrorFigures], ...], metric: MetricInfo) -> TextTable:
    """A row for each confirmed cause, ordered by what taking it away adds to the metric, then by the error gone."""
    causes = sorted(
        ((case, cause) for case in cases for cause in case.causes),
        key=lambda pair: (-_gain(pair[1].metric_change, metric), -(pair[1].saving.value if pair[1].saving else 0.0)),
    )
    rows = tuple(
        (
            case.case,
            _show_change(cause.metric_change, metric),
            f"{formatting.with_limits(cause.saving, scale=100.0)} %",
            formatting.one_line(cause.title),
            formatting.one_line(cause.change),
        )
        for case, cause in causes
    )
    columns = ("case", metric.name, "error gone", "what costs accuracy", "avoided by")
    return TextTable(columns=columns, rows=rows, words=(0, 3, 4))


def _list_layers(cases: tuple[ExplainedCase[ErrorFigures], ...], metric: MetricInfo) -> TextTable:
    """A row for each layer that was returned to float, of each case the one that takes most error away first."""
    rows = tuple(
        (
            case.case,
            formatting.one_line(layer.name),
            f"{formatting.with_limits(layer.saving, scale=100.0)} %",
            formatting.share(layer.together),
            _show_change(layer.metric_change, metric),
        )
        for case in cases
        for layer in case.figures.layers
    )
    columns = ("case", "layer in float", "error gone", "with those above", metric.name)
    return TextTable(columns=columns, rows=rows, words=(0, 1))


def _name_advice(case: ExplainedCase[ErrorFigures], metric: MetricInfo) -> str:
    gain = (
        ""
        if case.figures.metric_change is None
        else f": {metric.name} {_show_change(case.figures.metric_change, metric)}"
    )
    return f"{case.case}{gain}"


def _gain(change: Interval | None, metric: MetricInfo) -> float:
    return float("-inf") if change is None else metric.sign * change.value


def _show_change(change: Interval | None, metric: MetricInfo) -> str:
    return formatting.DASH if change is None else metric.show_change(change)


def _describe_loss(case: ExplainedCase[ErrorFigures], metric: MetricInfo) -> str:
    noise = (
        "the same outputs as fp32" if case.figures.sqnr_db is None else f"{case.figures.sqnr_db:.1f} dB signal to noise"
    )
    clauses = [f"{case.case}: on {case.figures.n:,} examples {noise} against fp32"]
    if case.figures.against_fp32 is not None:
        clauses.append(f"{metric.name} {metric.show_against_fp32(case.figures.against_fp32)}")
    if not case.causes:
        return f"{', '.join(clauses)}; no change that was tried is confirmed as a cause."
    sentence = ", ".join(clauses)
    if case.unexplained is not None:
        sentence = f"{sentence}; {formatting.share(max(0.0, case.unexplained))} of the error is not explained"
    return f"{sentence}." if case.note is None else f"{sentence}. {formatting.one_line(case.note)}"
