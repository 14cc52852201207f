"""``summary.md``: a run for a pull request; pure but for what it is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qbench import one_answer, runtime_difference, wording
from qbench.compare import Delta
from qbench.quant import coverage, input_fit
from qbench.report import answer, draws, flips, table, text
from qbench.report.answer import Answer, Judged
from qbench.report.flips import CaseFlips
from qbench.stored import StoredRun


def summary(
    run: StoredRun,
    judged: Judged,
    found: Sequence[Answer],
    changes: Sequence[CaseFlips] = (),
    deltas: Sequence[Delta] | None = None,
) -> str:
    """The answer, the tables, what flipped, what failed, how it was measured."""
    parts = [f"# qbench: {wording.markdown(run.info.suite.name)}", *_warnings(run, judged, changes)]
    parts += [*_answers(found, judged), *_tables(judged), *_flips(changes), *_draws(judged)]
    parts += _left(run) + _footnotes(run, judged)
    if deltas is not None:
        parts += ["## Compared", text.as_markdown(text.comparison(deltas, judged.metric))]
    return "\n\n".join(parts) + "\n"


def warnings(run: StoredRun, judged: Judged, changes: Sequence[CaseFlips]) -> tuple[str, ...]:
    """What a reader must know before any figure: data that does not fit, verdicts that are luck, changed files."""
    doubts = tuple(case.doubt for case in changes if case.doubt is not None)
    return (
        *one_answer.warnings(run.records),
        *input_fit.warnings(run.records),
        *coverage.warnings(run.records),
        *runtime_difference.warnings(run.records),
        *_seen_before(run),
        *judged.warnings(),
        *doubts,
    )


def _seen_before(run: StoredRun) -> Iterator[str]:
    """Scores on examples that calibration or training saw, which the suite allowed."""
    counts = {(one.shared_examples, one.n) for record in run.records if (one := record.accuracy) is not None}
    for shared, n in sorted((shared, n) for shared, n in counts if shared):
        yield (
            f"{shared:,} of the {n:,} evaluation examples are calibration or training examples, too "
            "(data.overlap: allow): the score on them proves nothing"
        )


def _warnings(run: StoredRun, judged: Judged, changes: Sequence[CaseFlips]) -> list[str]:
    lines = [f"- warning: {wording.markdown(one)}" for one in warnings(run, judged, changes)]
    return ["\n".join(lines)] if lines else []


def _flips(changes: Sequence[CaseFlips]) -> list[str]:
    listed, classes = flips.table(changes), flips.classes_table(changes)
    if not listed.rows:
        return []
    parts = ["## Which answers flipped", text.as_markdown(listed)]
    if without := flips.without(changes):
        parts.append(wording.markdown(without))
    if told := flips.classes_told(changes):
        parts += [wording.markdown(told), *([text.as_markdown(classes)] if classes.rows else [])]
    return [*parts, "All of them: `flips.csv`, `classes.csv`."]


def _draws(judged: Judged) -> list[str]:
    drawn = draws.table(judged)
    return ["## Luck of the calibration examples", text.as_markdown(drawn)] if drawn.rows else []


def _answers(found: Sequence[Answer], judged: Judged) -> list[str]:
    if not found:
        return ["No answer: the run has no record yet."]
    lines = []
    for one in found:
        name, said = wording.markdown(text.setting_name(one.setting)), f"{one.headline} {text.facts(one, judged)}"
        lines += [f"- **{name}**: {wording.markdown(said)}", *(f"  - {wording.markdown(note)}" for note in one.notes)]
    return ["\n".join(lines)]


def _tables(judged: Judged) -> list[str]:
    parts = []
    for setting in answer.settings(judged.records):
        unit = table.latency_unit(answer.of_setting(setting, judged.records))
        rows = text.setting_rows(judged, setting, unit)
        if not rows:
            continue
        columns = table.columns(judged, unit[1])
        lines = tuple((answer.variant(row.record), *(str(row.cells[column.key]) for column in columns)) for row in rows)
        content = text.TextTable(columns=("variant", *(column.title for column in columns)), rows=lines)
        parts += [f"## {wording.markdown(text.setting_name(setting))}", text.as_markdown(content)]
    return parts


def _left(run: StoredRun) -> list[str]:
    lines = []
    for status in ("failed", "skipped"):
        for record in run.records:
            if record.status == status:
                stage = f" ({wording.markdown(record.stage)})" if record.stage else ""
                lines.append(
                    f"- {status}{stage}: `{wording.code(record.case.id)}`: {wording.markdown(record.reason or '')}"
                )
    lines += [f"- no record: `{wording.code(case)}`" for case in run.info.plan.cases if case not in run.by_id]
    return ["## Failed and skipped", "\n".join(lines)] if lines else []


def _footnotes(run: StoredRun, judged: Judged) -> list[str]:
    cpu = run.info.environment.get("cpu")
    margin = (
        "" if judged.margin is None or judged.metric is None else f" Margin: {judged.margin:g} {judged.metric.unit}."
    )
    machine = f" Measured on {wording.markdown(str(cpu))}." if cpu else ""
    return [
        "Latency is closed-loop service time of one call; in brackets 95 % intervals; "
        f"control (A/A) is a second copy of the fp32, whose true value is 1.{margin}{machine}"
    ]
