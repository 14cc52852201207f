"""Two runs of a suite side by side: what is shown to have changed, open; what is not, folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from qbench import formatting
from qbench.compare import compare, environment
from qbench.compare import text as compare_text
from qbench.compare.changes import WORSE, CaseChange, find_changes
from qbench.compare.paired_accuracy import Examples, pair_accuracy
from qbench.decide.cases import setting_name
from qbench.decide.decision_type import Decision
from qbench.machine import fingerprint
from qbench.progress.table import TextTable
from qbench.record.example_scores import ExampleScores
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo, StoredRun
from qbench.report.markdown import Part, table_part
from qbench.stats.interval_type import Interval

ERROR = (
    "All verdicts share an error of 5 %: where nothing changed, at most one comparison in twenty names a case. Time is "
    "that of this run over the other's, each in units of its own fp32: above 0 is slower."
)


@dataclass(frozen=True, kw_only=True)
class ComparedCase:
    """One case: its cells, and whether what changed is for the worse, for the better or both (``mixed``)."""

    cells: tuple[str, ...]
    tone: Literal["bad", "good", "unsure", ""]


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """What changed since ``other``. ``sentence`` sums it up; ``answers`` and ``environment`` are name, before, after;
    ``suite`` is the changed lines of its text; ``notes`` limit what may be concluded."""

    other: str
    sentence: str
    answers: TextTable
    same_answers: int
    columns: tuple[str, ...]
    changed: tuple[ComparedCase, ...]
    unchanged: tuple[ComparedCase, ...]
    environment: TextTable
    suite: tuple[str, ...]
    notes: tuple[str, ...]


def change_table(changes: Sequence[CaseChange], metric: MetricInfo | None) -> TextTable:
    """One row per case of two runs: what is shown to have changed, slowdown, accuracy, size, and what limits them."""
    columns = ("case", "verdict", "time", "accuracy", "size", "notes")
    return TextTable(columns=columns, rows=tuple(_change_row(change, metric) for change in changes), words=(0, 1, 5))


def _change_row(change: CaseChange, metric: MetricInfo | None) -> tuple[str, ...]:
    delta = change.delta
    why = delta.contender.reason if delta.contender is not None and delta.change.startswith("now") else None
    notes = (*delta.notes, why) if why else delta.notes
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
        accuracy = (
            formatting.with_limits(delta.accuracy, signed=True)
            if metric is None
            else metric.show_change(delta.accuracy)
        )
    return formatting.clean(delta.case), change.verdict, time, accuracy, size, formatting.clean("; ".join(notes))


def case_changes(base: StoredRun, contender: StoredRun) -> tuple[CaseChange, ...]:
    """The changes of two runs: latency only where their machines are comparable, accuracy example by example where both
    runs keep the predictions."""
    field = fingerprint.comparable(base.info.environment, contender.info.environment)
    deltas = compare.compare(base.records, contender.records, incomparable=field)
    paired = pair_accuracy(deltas, examples_of(base), examples_of(contender), contender.score_of_facts)
    return find_changes(paired, contender.info.metric)


def examples_of(run: StoredRun) -> Examples:
    """A reader of what a record's score rests on."""

    def read(record: Record) -> ExampleScores | None:
        return run.examples(record, compare.like_for_like(record, run.records))

    return read


def compare_runs(
    base: StoredRun, contender: StoredRun, before: Sequence[Decision], after: Sequence[Decision]
) -> RunComparison:
    """The comparison of two runs with what each of them decides."""
    changes = case_changes(base, contender)
    metric = contender.info.metric
    rows = [
        ComparedCase(cells=cells, tone=_tone(change))
        for change, cells in zip(changes, change_table(changes, metric).rows, strict=True)
    ]
    answers, same = _answers(before, after)
    differing = environment.differences(base.info, contender.info)
    same_run = environment.is_same_run(base.info, contender.info, base.records, contender.records)
    return RunComparison(
        other=base.folder.name,
        sentence=f"{environment.SAME_RUN}." if same_run else _sum_up(changes, len(answers), same),
        answers=TextTable(columns=("setting", "before", "now"), rows=answers, words=(0, 1, 2)),
        same_answers=same,
        columns=change_table((), metric).columns,
        changed=tuple(row for row, change in zip(rows, changes, strict=True) if change.changed),
        unchanged=tuple(row for row, change in zip(rows, changes, strict=True) if not change.changed),
        environment=TextTable(columns=("what", "before", "now"), rows=differing, words=(0, 1, 2)),
        suite=environment.suite_changes(base.info, contender.info),
        notes=_notes(base, contender, changes),
    )


def _answers(before: Sequence[Decision], after: Sequence[Decision]) -> tuple[tuple[tuple[str, str, str], ...], int]:
    """The settings whose answer is another one, and how many have the same."""
    old = {decision.setting: decision for decision in before}
    new = {decision.setting: decision for decision in after}
    rows, same = [], 0
    for setting in {**new, **old}:
        headlines = [
            decisions[setting].headline if setting in decisions else "not in this run" for decisions in (old, new)
        ]
        if setting in old and setting in new and _meant(old[setting]) == _meant(new[setting]):
            same += 1
        else:
            rows.append((setting_name(setting), headlines[0], headlines[1]))
    return tuple(rows), same


def _meant(decision: Decision) -> tuple[str, ...]:
    """What an answer tells one to do."""
    named = (decision.pick,) if decision.verdict != "either" else (decision.pick, decision.runner_up)
    return decision.verdict, *sorted(record.case.id for record in named if record is not None)


def _sum_up(changes: Sequence[CaseChange], other_answers: int, same: int) -> str:
    answers = f"{other_answers:,} of {other_answers + same:,} settings" if other_answers else "no setting"
    words: Counter[str] = Counter(word for change in changes for word in change.words)
    words.update(change.delta.change for change in changes if change.changed and not change.words)
    changed = sum(change.changed for change in changes)
    kinds = f" ({', '.join(f'{count:,} {word}' for word, count in words.items())})" if words else ""
    return f"The answer changed in {answers}; {changed:,} of {len(changes):,} cases changed{kinds}."


def _tone(change: CaseChange) -> Literal["bad", "good", "unsure", ""]:
    if change.delta.change in ("now failed", "now skipped", "gone"):
        return "bad"
    if not change.words:
        return "good" if change.delta.change == "now ok" else ""
    worse = {word in WORSE for word in change.words}
    return "unsure" if len(worse) == 2 else "bad" if True in worse else "good"


def _notes(base: StoredRun, contender: StoredRun, changes: Sequence[CaseChange]) -> tuple[str, ...]:
    notes = [ERROR]
    if base.info.suite.name != contender.info.suite.name:
        notes.append(f"The other run is of another suite, {base.info.suite.name}: what differs may be no change.")
    if base.info.quick is not None or contender.info.quick is not None:
        notes.append("A quick look is coarse: what it shows to have changed is to be confirmed by a run proper.")
    for run, name in ((base, "The other run"), (contender, "This run")):
        if run.info.finished is None:
            notes.append(f"{name} was not finished.")
    if (unpaired := compare_text.unpaired([change.delta for change in changes])) is not None:
        notes.append(f"{unpaired[0].upper()}{unpaired[1:]}.")
    return tuple(notes)


# --- in Markdown -------------------------------------------------------------------------------------------------


def as_parts(comparison: RunComparison | None) -> list[Part]:
    """The comparison for summary.md, where there is one: the sentence and what changed, then folded the rest."""
    if comparison is None:
        return []
    sentence = f"**Compared with {formatting.markdown(comparison.other)}**: {formatting.markdown(comparison.sentence)}"
    sections = [Part(lines=(sentence,))]
    sections += [table_part(comparison.answers)] if comparison.answers.rows else []
    sections += [_rows_part(comparison.changed, comparison.columns, None)] if comparison.changed else []
    if comparison.environment.rows:
        sections.append(table_part(comparison.environment, folded="Machine, versions and commit: what differs"))
    if comparison.suite:
        # Indented, not fenced: no line of a suite can end it.
        lines = tuple(f"    {formatting.clean(line)}" for line in comparison.suite)
        sections.append(Part(before="", lines=lines, folded="The suite: what differs"))
    if comparison.unchanged:
        folded = f"{len(comparison.unchanged):,} cases without a change that is shown"
        sections.append(_rows_part(comparison.unchanged, comparison.columns, folded))
    notes = tuple(f"- {formatting.markdown(note)}" for note in comparison.notes)
    return [*sections, Part(lines=notes, folded="How the runs were compared")]


def _rows_part(rows: Sequence[ComparedCase], columns: tuple[str, ...], folded: str | None) -> Part:
    content = TextTable(columns=columns, rows=tuple(row.cells for row in rows), words=(0, 1, 5))
    return table_part(content, folded=folded)
