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
from qbench.report.cells import accuracy_limit
from qbench.report.names import variant_name
from qbench.report.ruling import Ruling, Rulings, rank
from qbench.report.table import latency_unit
from qbench.stats.interval_type import Interval

FASTEST = "fastest fp32"
SHOWN = 8  # of each, fp32 and candidates, that a reader sees without unfolding
_ACCURACY = {"PASS": "accuracy OK", "INCONCLUSIVE": "accuracy open", "FAIL": "loses too much"}


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """``shown``: the fp32 and the cases that may be shipped, ``rest`` all other measured ones, each with why it is not
    it; ``bold`` is the place of the pick in ``shown``."""

    shown: TextTable
    rest: TextTable
    bold: int | None


def candidates(decision: Decision, judged: Judged, rulings: Rulings) -> Candidates:
    """The measured cases of the decision's setting: the fp32 first, then the candidates, the best first."""
    records = cases.of_setting(decision.setting, judged.records)
    measured = rank(judged, [record for record in records if record.status == "ok"], rulings)
    fp32 = [record for record in measured if record.case.mode == "fp32"]
    fp32.sort(key=lambda record: cases.p50(record) or float("inf"))
    hopes = [record for record in measured if record.case.mode != "fp32" and rulings[record.case.id].candidate]
    shown = [*fp32[:SHOWN], *hopes[:SHOWN]]
    kept = {record.case.id for record in shown}
    rest = [record for record in measured if record.case.id not in kept]
    draw = _Rows(judged=judged, records=records, rulings=rulings, unit=latency_unit(records))
    pick = decision.pick if decision.verdict in ("ship", "either") else None
    return Candidates(
        shown=draw.table(shown, "verdict"),
        rest=draw.table(rest, "why not"),
        bold=next((place for place, record in enumerate(shown) if record is pick), None),
    )


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Draws rows of one setting: its records, what is said of them, the unit of its times."""

    judged: Judged
    records: Sequence[Record]
    rulings: Rulings
    unit: tuple[float, str]

    def table(self, records: Sequence[Record], last: str) -> TextTable:
        """``last``: the title of the column of words."""
        titles = f"time, {self.unit[1]}", "times the best fp32", self._title_accuracy(), "size", last
        return TextTable(columns=("variant", *titles), rows=tuple(map(self._row, records)), words=(0, 5))

    def _title_accuracy(self) -> str:
        metric = self.judged.metric
        if metric is None:
            return "accuracy"
        if holds_against_fp32(self.judged):
            return f"{metric.name}{', %' if metric.percent else ''}"
        unit = f", {metric.unit}" if metric.unit else ""
        return f"{metric.name} change{unit}{accuracy_limit(self.judged, self.records)}"

    def _row(self, record: Record) -> tuple[str, ...]:
        return (
            variant_name(record),
            self._time(record),
            _ratio(self.rulings[record.case.id]),
            tested_change.write_shown(self.judged, record),
            _size(record, self.records),
            self._verdict(record),
        )

    def _time(self, record: Record) -> str:
        seconds = cases.p50(record)
        if seconds is None or record.latency is None:
            return formatting.DASH
        p50 = Interval(value=seconds, low=record.latency.p50_low, high=record.latency.p50_high)
        return formatting.number(p50, scale=1 / self.unit[0])

    def _has_several_limits(self) -> bool:
        return len(self.judged.margins_of(self.records)) > 1

    def _verdict(self, record: Record) -> str:
        ruling, outcome = self.rulings[record.case.id], self.judged.outcome(record)
        said = [f"{ruling.symbol} {ruling.word}".strip()]
        if ruling.candidate and outcome is not None and "accuracy" not in ruling.word:
            own = accuracy_limit(self.judged, [record]) if self._has_several_limits() else ""
            said.append(f"{_ACCURACY[outcome]}{own}")
        return ", ".join(said)


def _ratio(ruling: Ruling) -> str:
    ratio = ruling.over_fp32
    if ruling.word == FASTEST or (ratio is not None and ruling.word == "keep" and ratio.low is None):
        return "1 (reference)"
    if ratio is None:
        return formatting.DASH
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}"
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _size(record: Record, records: Sequence[Record]) -> str:
    if record.artifact is None:
        return formatting.DASH
    own = record.artifact.size_bytes
    fp32 = compare.like_for_like(record, records) if cases.is_int8(record) else None
    if fp32 is None or fp32.artifact is None:
        return formatting.size(own)
    return f"{formatting.size(own)} ({formatting.share(own / fp32.artifact.size_bytes, 0)} of fp32)"
