"""``summary.md``: a run for a pull request; pure.

A sentence for each setting, then its fp32 and what may be shipped; everything else is folded. It
stays under what a comment on GitHub may have, however large the run is: lines are left out then, and said to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.compare import compare
from qbench.decide import cases, tested_change
from qbench.decide import text as decide_text
from qbench.decide.cases import setting_name
from qbench.decide.decision_type import Decision
from qbench.decide.hosts_differ import list_differences
from qbench.decide.judged import Judged
from qbench.decide.names import variant_name
from qbench.decide.tested_change import describe_levels, holds_against_fp32
from qbench.portability import text as portability_text
from qbench.portability.compare_hosts import compare_hosts
from qbench.progress.table import TextTable
from qbench.record.schema import Record
from qbench.record.stored_run import StoredRun
from qbench.report import calibration_seeds, flips
from qbench.report.cells import REFERENCE, accuracy_limit, interval_cell, latency_unit, time_of
from qbench.report.columns import accuracy_key, list_shown
from qbench.report.explained import list_lost, list_slow
from qbench.report.flips import CaseFlips
from qbench.report.markdown import LETTERS, Part, fit, list_part, table_part
from qbench.report.overview import count_answers, describe_state, overview
from qbench.report.ruling import Ruling, Rulings, rank
from qbench.report.run_warnings import find_doubts, find_remarks

LIMIT = 60_000  # characters; GitHub takes 65,536 in a comment
OPEN_SETTINGS = 6
_SENTENCE = 600  # characters of a warning, a reason or an answer
FASTEST = "fastest fp32"
OPEN_CASES = 8  # of each, fp32 and candidates, that a reader sees without unfolding
_ACCURACY = {"PASS": "accuracy OK", "INCONCLUSIVE": "accuracy open", "FAIL": "loses too much"}


def summary(
    run: StoredRun,
    judged: Judged,
    decisions: Sequence[Decision],
    rulings: Rulings,
    changes: Sequence[CaseFlips],
    compared: Sequence[Part] = (),
) -> str:
    """The answer, the tables, what changed from another run (``compared``); folded: the rest. ``rulings`` are what is
    said of the cases, ``changes`` the run's flips."""
    tables = [candidates(decision, judged, rulings) for decision in decisions]
    title = f"# qbench: {formatting.markdown(formatting.shorten(run.info.suite.name, LETTERS))}"
    sections = [
        *_answers(title, decisions),
        *_by_host(decisions),
        Part(lines=tuple(filter(None, [_escape(overview(judged, decisions, rulings))]))),
        *(Part(lines=(state,)) for state in filter(None, [describe_state(run)])),
        *_warnings(find_doubts(run, judged, changes)),
        *(part for part in compared if part.folded is None),
        *_tables(decisions, tables),
        *(part for part in compared if part.folded is not None),
        *_warnings(find_remarks(run)),
        *_folded(run, judged, decisions, tables, changes),
    ]
    return fit(sections, LIMIT)


def _by_host(decisions: Sequence[Decision]) -> Iterator[Part]:
    """Where the answer depends on the machine."""
    if lines := [f"**{_escape(each.text)}**" for each in list_differences(decisions)]:
        yield list_part(lines)


def _escape(sentence: str) -> str:
    return formatting.markdown(formatting.shorten(sentence, _SENTENCE))


def _warnings(sentences: Sequence[str]) -> Iterator[Part]:
    if lines := [f"warning: {_escape(warning)}" for warning in sentences]:
        yield list_part(lines)


def _answers(title: str, decisions: Sequence[Decision]) -> Iterator[Part]:
    """The sentence of each setting; of many first how many have which answer, and only the first are open."""
    if not decisions:
        yield Part(lines=(f"{title}\n\n**No answer: the run has no record yet.**",))
        return
    sentences = [f"**{_escape(decision.sentence)}**" for decision in decisions]
    if len(decisions) == 1:
        yield Part(lines=(f"{title}\n\n{sentences[0]}",))
        return
    counted = f"\n\n{count_answers(decisions)}" if len(decisions) > OPEN_SETTINGS else ""
    part = list_part(sentences[:OPEN_SETTINGS], before=f"{title}{counted}\n")
    yield part
    if len(decisions) > OPEN_SETTINGS:
        yield list_part(sentences[OPEN_SETTINGS:], folded=f"The other {len(decisions) - OPEN_SETTINGS:,} settings")


def _tables(decisions: Sequence[Decision], tables: Sequence[Candidates]) -> Iterator[Part]:
    """The table of each setting; only the first are open where there are many."""
    for number, (decision, table) in enumerate(zip(decisions, tables, strict=True), start=1):
        if table.open.rows:
            folded = f"Setting {number:,}: its candidates and fp32" if number > OPEN_SETTINGS else None
            name = f"**{_name(decision)}**\n\n"
            part = table_part(table.open, bold=table.bold, folded=folded)
            yield Part(lines=part.lines, before=name + part.before, rest=part.rest, folded=folded)


def _name(decision: Decision) -> str:
    return formatting.markdown(formatting.shorten(setting_name(decision.setting), LETTERS))


def _folded(
    run: StoredRun,
    judged: Judged,
    decisions: Sequence[Decision],
    tables: Sequence[Candidates],
    changes: Sequence[CaseFlips],
) -> Iterator[Part]:
    yield from _reasons(judged, decisions)
    yield from _rest(decisions, tables)
    yield from _flips(changes)
    answers = compare_hosts(run, judged)
    if sentences := portability_text.list_sentences(answers, run.info.metric):
        yield list_part([_escape(sentence) for sentence in sentences], folded="On other hosts")
    slow = list_slow(run)
    if slow.sentences:
        yield list_part([_escape(reason) for reason in slow.sentences], folded="Why not faster")
        if slow.causes.rows:
            yield table_part(slow.causes, folded="Causes, and what avoids them")
    lost = list_lost(run, judged)
    if lost.sentences:
        yield list_part([_escape(reason) for reason in lost.sentences], folded="Why not right")
        if lost.causes.rows:
            yield table_part(lost.causes, folded="Causes of lost accuracy, and what avoids them")
    drawn = calibration_seeds.table(judged)
    if drawn.rows:
        yield table_part(drawn, folded="Spread over calibration seeds")
    yield from _left(run)
    yield Part(lines=(_method(run, judged),), folded="How it was measured")


def _reasons(judged: Judged, decisions: Sequence[Decision]) -> Iterator[Part]:
    lines = []
    for decision in decisions:
        points = [decide_text.facts(decision, judged), *decide_text.points(decision)]
        lines += [f"**{_name(decision)}**"] if len(decisions) > 1 else []
        lines += [_escape(point) for point in points if point]
    if lines:
        yield list_part(lines, folded="Figures, how sure, and what would change it")


def _rest(decisions: Sequence[Decision], tables: Sequence[Candidates]) -> Iterator[Part]:
    for decision, table in zip(decisions, (each.rest for each in tables), strict=True):
        if table.rows:
            part = table_part(table)
            before = f"**{_name(decision)}**\n\n{part.before}"
            plural = "case" if len(table.rows) == 1 else "cases"
            yield Part(
                lines=part.lines,
                before=before,
                rest=part.rest,
                folded=f"{len(table.rows):,} {plural} more, and why not",
            )


def _flips(changes: Sequence[CaseFlips]) -> Iterator[Part]:
    listed, classes = flips.table(changes), flips.classes_table(changes)
    if not listed.rows:
        return
    notes = [flips.without(changes), "All of them: flips.csv."]
    yield table_part(listed, folded="Which answers flipped", after=_escape(" ".join(filter(None, notes))))
    if sentence := flips.classes_told(changes):
        after = _escape(f"{sentence} All of them: classes.csv.")
        lines = table_part(classes, after=after) if classes.rows else Part(lines=(after,))
        yield Part(lines=lines.lines, before=lines.before, after=lines.after, folded="Class by class")


def _left(run: StoredRun) -> Iterator[Part]:
    lines = []
    for status in ("failed", "skipped"):
        for record in run.records:
            if record.status == status:
                stage = f" ({formatting.markdown(record.stage)})" if record.stage else ""
                lines.append(f"{status}{stage}: {_case(record.case.id)}: {_escape(record.reason or '')}")
    lines += [f"no record: {_case(case)}" for case in run.info.plan.cases if case not in run.by_id]
    if lines:
        yield list_part(lines, folded=f"Failed and skipped ({len(lines):,})")


def _case(case: str) -> str:
    return formatting.markdown(formatting.shorten(case, LETTERS))


def _method(run: StoredRun, judged: Judged) -> str:
    cpu = run.info.environment.get("cpu")
    return _escape(
        "Time is that of one call (p50 of the closed-loop service time); in brackets 95 % limits, of the accuracy "
        f"change {describe_levels(judged, judged.records)}. That change is paired: against fp32 on the same runtime, "
        "on the same examples; accuracy OK is a test at 5 % on one side." + (f" Measured on {cpu}." if cpu else "")
    )


# --- the table of a setting -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """``open``: the fp32 and the cases that may be shipped, ``rest`` all other measured ones, each with why it is not
    it; ``bold`` is the place of the pick in ``open``."""

    open: TextTable
    rest: TextTable
    bold: int | None


def candidates(decision: Decision, judged: Judged, rulings: Rulings) -> Candidates:
    """The measured cases of the decision's setting: the fp32 first, then the candidates, the best first."""
    records = cases.of_setting(decision.setting, judged.records)
    measured = rank(judged, [record for record in records if record.status == "ok"], rulings)
    fp32 = [record for record in measured if record.case.mode == "fp32"]
    fp32.sort(key=lambda record: cases.p50(record) or float("inf"))
    hopes = [record for record in measured if record.case.mode != "fp32" and rulings[record.case.id].candidate]
    open_cases = [*fp32[:OPEN_CASES], *hopes[:OPEN_CASES]]
    open_ids = {record.case.id for record in open_cases}
    rest = [record for record in measured if record.case.id not in open_ids]
    setting = _Setting(judged=judged, records=records, rulings=rulings, unit=latency_unit(records))
    pick = decision.pick if decision.verdict in ("ship", "either") else None
    return Candidates(
        open=setting.table(open_cases, "verdict"),
        rest=setting.table(rest, "why not"),
        bold=next((index for index, record in enumerate(open_cases) if record is pick), None),
    )


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """Draws the cases of one setting: its records, what is said of them, the unit of its times."""

    judged: Judged
    records: Sequence[Record]
    rulings: Rulings
    unit: tuple[float, str]

    def table(self, records: Sequence[Record], last: str) -> TextTable:
        """``last``: the title of the column of words."""
        columns = list_shown(self.judged, self.unit[1])
        of_accuracy = "accuracy" if self.judged.metric is None else columns[accuracy_key(self.judged)].markdown
        of_accuracy += "" if holds_against_fp32(self.judged) else accuracy_limit(self.judged, self.records)
        p50, best, size = (columns[key].markdown for key in ("p50", "best", "size"))
        titles = ("variant", p50, best, of_accuracy, size, last)
        return TextTable(columns=titles, rows=tuple(map(self._row, records)), words=(0, 5))

    def _row(self, record: Record) -> tuple[str, ...]:
        return (
            variant_name(record),
            formatting.number(time_of(record), scale=1 / self.unit[0]),
            _ratio(self.rulings[record.case.id]),
            tested_change.write_shown(self.judged, record),
            _size(record, self.records),
            self._verdict(record),
        )

    def _verdict(self, record: Record) -> str:
        ruling, outcome = self.rulings[record.case.id], self.judged.outcome(record)
        words = f"{ruling.symbol} {ruling.word}".strip()
        if not ruling.candidate or outcome is None or "accuracy" in ruling.word:
            return words
        several = len(self.judged.bounds_of(self.records)) > 1
        return f"{words}, {_ACCURACY[outcome]}{accuracy_limit(self.judged, [record]) if several else ''}"


def _ratio(ruling: Ruling) -> str:
    ratio = ruling.over_fp32
    is_reference = ruling.word == FASTEST or (ratio is not None and ruling.word == "keep" and ratio.low is None)
    return str(REFERENCE if is_reference else interval_cell(ratio))


def _size(record: Record, records: Sequence[Record]) -> str:
    size = formatting.size(record.artifact.size_bytes if record.artifact else None)
    fp32 = compare.like_for_like(record, records) if cases.is_contender(record) else None
    ratio = compare.size_ratio(fp32, record)
    return size if ratio is None else f"{size} ({formatting.share(ratio, 0)} of fp32)"
