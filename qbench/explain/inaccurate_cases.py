"""Which int8 cases of a run are not shown to be accurate enough, by its records; pure."""

from __future__ import annotations

from collections.abc import Sequence

from qbench.compare.compare import oriented
from qbench.decide.judged import Judged
from qbench.explain.open_case import why_not_explained
from qbench.record.schema import Record

_ORDER = {"FAIL": 0, "INCONCLUSIVE": 1}


def list_inaccurate_cases(judged: Judged, known: Sequence[str] = ()) -> list[str]:
    """The ids of the int8 cases that can be explained, are not ``known``, and whose accuracy fails or is open; those
    that fail first, of each those that lose most."""
    cases = [
        record
        for record in judged.records
        if judged.outcome(record) in _ORDER
        and record.case.id not in known
        and why_not_explained(record, ("accuracy",)) is None
    ]
    return [
        record.case.id
        for record in sorted(cases, key=lambda each: (_ORDER[judged.outcome(each) or ""], _change(each, judged)))
    ]


def _change(record: Record, judged: Judged) -> float:
    delta = None if record.accuracy is None else record.accuracy.delta
    return 0.0 if delta is None or judged.metric is None else oriented(delta, judged.metric.sign).value
