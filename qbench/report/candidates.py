"""The cases of a setting in six columns: what a pull request shows of them; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.compare import compare
from qbench.decide import cases, reasons
from qbench.decide.decision import Decision
from qbench.decide.judged import Judged
from qbench.decide.paired_times import as_ratio
from qbench.progress.table import TextTable
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.report.table import latency_unit
from qbench.stats.interval_type import Interval

SHOWN = 8  # candidates beside the fp32 that a reader sees without unfolding
_ACCURACY = {"PASS": "accuracy OK", "INCONCLUSIVE": "accuracy not decided", "FAIL": "loses too much"}
_ROLES = {"ship": "ship", "either": "either", "undecided": "the first to decide on"}


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """``shown``: the fp32 and the cases that may be shipped, ``rest`` all other measured ones, each with why it is not
    it; ``bold`` is the place of the pick in ``shown``."""

    shown: TextTable
    rest: TextTable
    bold: int | None


def candidates(decision: Decision, judged: Judged) -> Candidates:
    """The measured cases of the decision's setting, the fp32 first, then the fastest first."""
    records = cases.of_setting(decision.setting, judged.records)
    measured = [record for record in records if record.status == "ok"]
    measured.sort(key=lambda record: (record.case.mode != "fp32", cases.p50(record) or float("inf"), record.case.id))
    leading = _list_leading(decision, measured)
    draw = _Rows(
        decision=decision, judged=judged, records=records, unit=latency_unit(records), best=cases.fastest_fp32(measured)
    )
    shown = [record for record in measured if record in leading]
    rest = [record for record in measured if record not in leading]
    pick = decision.pick if decision.verdict in ("ship", "either") else None
    return Candidates(
        shown=draw.table(shown, "verdict"),
        rest=draw.table(rest, "why not"),
        bold=next((place for place, record in enumerate(shown) if record is pick), None),
    )


def _list_leading(decision: Decision, measured: Sequence[Record]) -> list[Record]:
    """Every fp32, what the answer names, and the fastest of those that break no limit and are no slower than fp32."""
    named = [decision.pick, decision.runner_up]
    tied = set(decision.tied)
    best = cases.fastest_fp32(measured)
    first = [r for r in measured if cases.is_int8(r) and (r.case.id in tied or any(r is one for one in named))]
    others = [r for r in measured if cases.is_int8(r) and r not in first and _may_be_it(r, decision, best)]
    return [*(r for r in measured if not cases.is_int8(r))][:SHOWN] + [*first, *others][:SHOWN]


def _may_be_it(record: Record, decision: Decision, best: Record | None) -> bool:
    ratio = _over_best(record, best)
    held = all(check.outcome != "FAIL" for check in decision.checks.get(record.case.id, ()))
    return held and ratio is not None and ratio.value > 1


def _over_best(record: Record, best: Record | None) -> Interval | None:
    """How many times as fast as the fastest fp32: measured together, else from the two p50."""
    fastest = record.speedup_fastest
    if fastest is not None and fastest.baseline != record.case.id:
        return Interval(value=fastest.value, low=fastest.low, high=fastest.high)
    own, full = cases.p50(record), None if best is None else cases.p50(best)
    return None if own is None or full is None else Interval(value=full / own)


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Draws rows of one setting: its decision and records, the unit of its times, its fastest fp32."""

    decision: Decision
    judged: Judged
    records: Sequence[Record]
    unit: tuple[float, str]
    best: Record | None

    def table(self, records: Sequence[Record], last: str) -> TextTable:
        """``last``: the title of the column of words."""
        title = f"time, {self.unit[1]}", "times the best fp32", self._title_accuracy(), "size", last
        rows = tuple(self._row(record, verdict=last == "verdict") for record in records)
        return TextTable(columns=("variant", *title), rows=rows, words=(0, 5))

    def _title_accuracy(self) -> str:
        metric, margin = self.judged.metric, self.judged.margin
        if metric is None:
            return "accuracy"
        if metric.against == "fp32":
            return f"{metric.name}{', %' if metric.percent else ''}"
        unit = f", {metric.unit}" if metric.unit else ""
        limit = "" if margin is None else f" (limit -{formatting.fixed(margin, 1 if margin * 10 % 1 == 0 else 3)})"
        return f"{metric.name} change{unit}{limit}"

    def _row(self, record: Record, *, verdict: bool) -> tuple[str, ...]:
        return (
            cases.variant(record),
            self._time(record),
            self._ratio(record),
            _accuracy(record, self.judged.metric),
            _size(record, self.records),
            self._verdict(record) if verdict else self._reason(record),
        )

    def _time(self, record: Record) -> str:
        seconds = cases.p50(record)
        if seconds is None or record.latency is None:
            return formatting.DASH
        p50 = Interval(value=seconds, low=record.latency.p50_low, high=record.latency.p50_high)
        return formatting.number(p50, scale=1 / self.unit[0])

    def _ratio(self, record: Record) -> str:
        if record is self.best:
            return "1 (reference)"
        over = self.decision.over_fp32
        if record is self.decision.pick and self.decision.fp32 is self.best and over is not None:
            ratio: Interval | None = as_ratio(over)
        else:
            ratio = _over_best(record, self.best)
        if ratio is None:
            return formatting.DASH
        if ratio.low is None or ratio.high is None:
            return f"{ratio.value:.2f}"
        return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"

    def _verdict(self, record: Record) -> str:
        if not cases.is_int8(record):
            return "the best fp32" if record is self.best else "fp32"
        outcome = self.judged.outcome(record)
        accuracy = "accuracy not judged" if outcome is None else _ACCURACY[outcome]
        return f"{self._role(record)}, {accuracy}".removeprefix(", ")

    def _role(self, record: Record) -> str:
        decision = self.decision
        if record is decision.pick:
            return _ROLES.get(decision.verdict, "")
        if record is decision.runner_up:
            return "either" if decision.verdict == "either" else "runner-up"
        return "tied" if record.case.id in decision.tied else ""

    def _reason(self, record: Record) -> str:
        named = (reason for reason, listed in self.decision.not_it if record.case.id in listed)
        reason = next(named, formatting.DASH)
        return {several: single for single, several in reasons.BROKEN.values()}.get(reason, reason)


def _accuracy(record: Record, metric: MetricInfo | None) -> str:
    scores = record.accuracy
    if scores is None or metric is None:
        return formatting.DASH
    if metric.against == "fp32":
        own = Interval(value=scores.value, low=scores.low, high=scores.high)
        return formatting.with_limits(own, scale=metric.scale, least=metric.least)
    if scores.delta is None:
        return formatting.DASH
    return formatting.with_limits(scores.delta, scale=metric.scale, signed=True, least=metric.least)


def _size(record: Record, records: Sequence[Record]) -> str:
    if record.artifact is None:
        return formatting.DASH
    own = record.artifact.size_bytes
    fp32 = compare.like_for_like(record, records) if cases.is_int8(record) else None
    if fp32 is None or fp32.artifact is None:
        return formatting.size(own)
    return f"{formatting.size(own)} ({formatting.share(own / fp32.artifact.size_bytes, 0)} of fp32)"
