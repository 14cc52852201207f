"""The cases of a setting in six columns: what a pull request shows of them; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.compare import compare
from qbench.decide import cases, tested_change
from qbench.decide.decision import Decision
from qbench.decide.judged import Judged
from qbench.decide.tested_change import holds_against_fp32
from qbench.progress.table import TextTable
from qbench.record.schema import Record
from qbench.report.cells import REFERENCE, accuracy_limit, interval_cell, latency_unit, time_of
from qbench.report.columns import accuracy_key, list_shown
from qbench.report.names import variant_name
from qbench.report.ruling import Ruling, Rulings, rank

FASTEST = "fastest fp32"
OPEN_CASES = 8  # of each, fp32 and candidates, that a reader sees without unfolding
_ACCURACY = {"PASS": "accuracy OK", "INCONCLUSIVE": "accuracy open", "FAIL": "loses too much"}


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
        shown = list_shown(self.judged, self.unit[1])
        of_accuracy = "accuracy" if self.judged.metric is None else shown[accuracy_key(self.judged)].markdown
        of_accuracy += "" if holds_against_fp32(self.judged) else accuracy_limit(self.judged, self.records)
        columns = ("variant", shown["p50"].markdown, shown["best"].markdown, of_accuracy, shown["size"].markdown, last)
        return TextTable(columns=columns, rows=tuple(map(self._row, records)), words=(0, 5))

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
        several = len(self.judged.margins_of(self.records)) > 1
        return f"{words}, {_ACCURACY[outcome]}{accuracy_limit(self.judged, [record]) if several else ''}"


def _ratio(ruling: Ruling) -> str:
    ratio = ruling.over_fp32
    is_reference = ruling.word == FASTEST or (ratio is not None and ruling.word == "keep" and ratio.low is None)
    return str(REFERENCE if is_reference else interval_cell(ratio))


def _size(record: Record, records: Sequence[Record]) -> str:
    size = formatting.size(record.artifact.size_bytes if record.artifact else None)
    fp32 = compare.like_for_like(record, records) if cases.is_int8(record) else None
    ratio = compare.size_ratio(fp32, record)
    return size if ratio is None else f"{size} ({formatting.share(ratio, 0)} of fp32)"
