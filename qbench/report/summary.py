"""``summary.md``: a run for a pull request; pure but for what it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qbench import formatting
from qbench.compare import above_peak, host_share
from qbench.compare import text as compare_text
from qbench.compare.compare import Delta
from qbench.decide import cases
from qbench.decide import text as decide_text
from qbench.decide.decision import Decision
from qbench.decide.judged import Judged
from qbench.evaluate import constant_answer, runtime_difference
from qbench.progress.table import TextTable
from qbench.quant.analysis import input_drift
from qbench.quant.artifacts import coverage
from qbench.record.stored_run import StoredRun
from qbench.report import calibration_seeds, flips, table, text
from qbench.report.flips import CaseFlips


def summary(
    run: StoredRun,
    judged: Judged,
    found: Sequence[Decision],
    changes: Sequence[CaseFlips] = (),
    deltas: Sequence[Delta] | None = None,
) -> str:
    """The answer, the tables, what flipped, what failed, how it was measured."""
    parts = [f"# qbench: {formatting.markdown(run.info.suite.name)}", *_warnings(run, judged, changes)]
    parts += [*_answers(run, found, judged), *_tables(judged), *_flips(changes), *_draws(judged)]
    parts += _left(run) + _footnotes(run, judged)
    if deltas is not None:
        parts += ["## Compared", text.as_markdown(text.comparison(deltas, judged.metric))]
        parts += [told] if (told := compare_text.unpaired(deltas)) is not None else []
    return "\n\n".join(parts) + "\n"


def warnings(run: StoredRun, judged: Judged, changes: Sequence[CaseFlips]) -> tuple[str, ...]:
    """What to know before any figure: data that does not fit, verdicts that a seed decides, changed files."""
    doubts = tuple(case.doubt for case in changes if case.doubt is not None)
    return (
        *([] if run.info.quick is None else [run.info.quick.text]),
        *constant_answer.warnings(run.records),
        *input_drift.warnings(run.records),
        *coverage.warnings(run.records),
        *runtime_difference.warnings(run.records),
        *above_peak.warnings(run.records),
        *host_share.warnings(run.records),
        *_describe_shared(run),
        *judged.warnings(),
        *doubts,
    )


def _describe_shared(run: StoredRun) -> Iterator[str]:
    """Scores on examples that calibration or training saw, which the suite allowed."""
    scores = [record.accuracy for record in run.records if record.accuracy is not None]
    counts = {(accuracy.shared_examples, accuracy.n) for accuracy in scores}
    for shared, n in sorted((shared, n) for shared, n in counts if shared):
        yield (
            f"{shared:,} of the {n:,} evaluation examples are calibration or training examples, too "
            "(data.overlap: allow): the score on them proves nothing"
        )


def _warnings(run: StoredRun, judged: Judged, changes: Sequence[CaseFlips]) -> list[str]:
    lines = [f"- warning: {formatting.markdown(warning)}" for warning in warnings(run, judged, changes)]
    return ["\n".join(lines)] if lines else []


def _flips(changes: Sequence[CaseFlips]) -> list[str]:
    listed, classes = flips.table(changes), flips.classes_table(changes)
    if not listed.rows:
        return []
    parts = ["## Which answers flipped", text.as_markdown(listed)]
    if without := flips.without(changes):
        parts.append(formatting.markdown(without))
    if told := flips.classes_told(changes):
        parts += [formatting.markdown(told), *([text.as_markdown(classes)] if classes.rows else [])]
    return [*parts, "All of them: `flips.csv`, `classes.csv`."]


def _draws(judged: Judged) -> list[str]:
    drawn = calibration_seeds.table(judged)
    return ["## Spread over calibration seeds", text.as_markdown(drawn)] if drawn.rows else []


def _answers(run: StoredRun, answers: Sequence[Decision], judged: Judged) -> list[str]:
    if not answers:
        return ["No answer: the run has no record yet."]
    lines = []
    for answer in answers:
        name = formatting.markdown(text.answer_name(answer.setting, run.info))
        said = f"{answer.headline} {decide_text.facts(answer, judged)}"
        lines += [
            f"- **{name}**: {formatting.markdown(said)}",
            *(f"  - {formatting.markdown(note)}" for note in decide_text.points(answer)),
        ]
    return ["\n".join(lines)]


def _tables(judged: Judged) -> list[str]:
    parts = []
    for setting in cases.settings(judged.records):
        unit = table.latency_unit(cases.of_setting(setting, judged.records))
        rows = text.setting_rows(judged, setting, unit)
        if not rows:
            continue
        columns = table.columns(judged, unit[1])
        lines = tuple((cases.variant(row.record), *(str(row.cells[column.key]) for column in columns)) for row in rows)
        content = TextTable(columns=("variant", *(column.title for column in columns)), rows=lines)
        parts += [f"## {formatting.markdown(text.setting_name(setting))}", text.as_markdown(content)]
    return parts


def _left(run: StoredRun) -> list[str]:
    lines = []
    for status in ("failed", "skipped"):
        for record in run.records:
            if record.status == status:
                stage = f" ({formatting.markdown(record.stage)})" if record.stage else ""
                reason = formatting.markdown(record.reason or "")
                lines.append(f"- {status}{stage}: `{formatting.code(record.case.id)}`: {reason}")
    lines += [f"- no record: `{formatting.code(case)}`" for case in run.info.plan.cases if case not in run.by_id]
    return ["## Failed and skipped", "\n".join(lines)] if lines else []


def _footnotes(run: StoredRun, judged: Judged) -> list[str]:
    cpu = run.info.environment.get("cpu")
    margin = (
        "" if judged.margin is None or judged.metric is None else f" Margin: {judged.margin:g} {judged.metric.unit}."
    )
    machine = f" Measured on {formatting.markdown(str(cpu))}." if cpu else ""
    return [
        "Latency is closed-loop service time of one call; in brackets 95 % intervals; "
        f"control (A/A) is a second copy of the fp32, whose true value is 1.{margin}{machine}"
    ]
