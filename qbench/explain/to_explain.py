"""Which int8 cases of a run are worth an explanation, by its records: those that are slower than they should be, and
those that are not shown to be accurate enough; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from qbench.compare.compare import oriented
from qbench.decide import cases
from qbench.decide.judged import Judged
from qbench.explain.open_case import why_not_explained
from qbench.record.schema import Record

LEAST_SPEEDUP = 2.0  # over fp32: what int8 is expected to gain where a suite does not promise a speed-up
_ORDER = {"FAIL": 0, "INCONCLUSIVE": 1}


def list_slow_cases(records: Iterable[Record], least: float, explained: Collection[str] = ()) -> list[str]:
    """The ids of the int8 cases that can be explained, are not ``explained``, and are not ``least`` times as fast as
    fp32; those first that take most seconds for one example beyond what that speed-up leaves. A case without a speed-up
    or a latency is none of them."""
    lost: dict[str, float] = {}
    for record in records:
        seconds, speedup = cases.p50(record), record.speedup
        if seconds is None or speedup is None or speedup.value is None or speedup.value >= least:
            continue
        if record.case.id not in explained and why_not_explained(record) is None:
            lost[record.case.id] = seconds / record.case.batch_size * (1 - speedup.value / least)
    return sorted(lost, key=lambda case: -lost[case])


def list_inaccurate_cases(judged: Judged, explained: Collection[str] = ()) -> list[str]:
    """The ids of the int8 cases that can be explained, are not ``explained``, and whose accuracy fails or is open;
    those that fail first, of each those that lose most."""
    wrong = [
        record
        for record in judged.records
        if judged.outcome(record) in _ORDER
        and record.case.id not in explained
        and why_not_explained(record, ("accuracy",)) is None
    ]
    return [
        record.case.id
        for record in sorted(wrong, key=lambda each: (_ORDER[judged.outcome(each) or ""], _change(each, judged)))
    ]


def _change(record: Record, judged: Judged) -> float:
    delta = None if record.accuracy is None else record.accuracy.delta
    return 0.0 if delta is None or judged.metric is None else oriented(delta, judged.metric.sign).value
