"""The change of accuracy that stands beside a verdict, with the limits that were tested; pure.

What is stored has 95 % limits. The accuracy test is one-sided at 5 %, so its limits are those of 90 %; where neither
flips nor predictions are stored, it reads the stored ones. Whatever shows the change of a case, or the score of a
metric that itself holds it against fp32, takes it from here: table, card, picture, caption, frame, README of a shipped
folder. So a figure has one interval, which reaches over the margin where, and only where, the verdict is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.compare import compare
from qbench.decide.judged import Judged
from qbench.record.schema import Record
from qbench.stats import noninferiority
from qbench.stats.interval_type import Interval

STORED_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class ShownChange:
    """A change of accuracy (or a score, where the metric itself holds it against fp32) in the metric's own scale and
    direction, with limits at ``level`` that come about by ``method``; ``tested``: they are those of the test. ``bound``
    is the margin in the same terms, None where nothing is tested."""

    interval: Interval
    level: float
    tested: bool
    method: str | None
    bound: float | None = None


def change_of(judged: Judged, record: Record) -> ShownChange | None:
    """The case's change against its fp32; None where there is none."""
    stored = None if record.accuracy is None else record.accuracy.delta
    if stored is None:
        return None
    test, bound, metric = judged.test_of(record), judged.bound_of(record), judged.metric
    if test is None or metric is None or bound is None:
        return ShownChange(interval=stored, level=STORED_LEVEL, tested=False, method=_stored_method(record))
    return ShownChange(
        interval=compare.oriented(test.delta, metric.sign),
        level=test.level,
        tested=True,
        method=_stored_method(record) if test.method == noninferiority.STORED else test.method,
        bound=-metric.sign * bound.loss / metric.scale,
    )


def score_of(judged: Judged, record: Record) -> ShownChange | None:
    """The case's score with its own limits; with those that were tested where it is itself held against fp32."""
    scores = record.accuracy
    if scores is None:
        return None
    change = change_of(judged, record) if holds_against_fp32(judged) else None
    if change is None or not change.tested or change.bound is None or scores.delta is None:
        score = Interval(value=scores.value, low=scores.low, high=scores.high)
        return ShownChange(interval=score, level=STORED_LEVEL, tested=False, method=scores.interval)
    fp32 = scores.value - scores.delta.value
    low, high = (None if limit is None else fp32 + limit for limit in (change.interval.low, change.interval.high))
    if judged.metric is not None and judged.metric.percent and high is not None and scores.value <= 1:
        high = min(high, 1.0)  # a share is never more than all
    return ShownChange(
        interval=Interval(value=scores.value, low=low, high=high),
        level=change.level,
        tested=True,
        method=change.method,
        bound=fp32 + change.bound,
    )


def _stored_method(record: Record) -> str | None:
    return None if record.accuracy is None else record.accuracy.interval


def shown_of(judged: Judged, record: Record) -> ShownChange | None:
    """What stands beside the verdict: the change; where the metric is against fp32 the score, which says how near the
    case is to it."""
    return score_of(judged, record) if holds_against_fp32(judged) else change_of(judged, record)


def holds_against_fp32(judged: Judged) -> bool:
    """Whether the metric itself holds a case against fp32, so that a change of it would be no news."""
    return judged.metric is not None and judged.metric.against == "fp32"


def count_decimals(changes: Iterable[ShownChange | None], scale: float, least: int) -> int:
    """At least so many, and as many as it takes for no number to read like the bound that it does not equal."""
    decimals = least
    for change in changes:
        if change is not None and change.bound is not None:
            ends = (change.interval.value, change.interval.low, change.interval.high)
            values = [None if end is None else end * scale for end in ends]
            decimals = formatting.places_beside(values, change.bound * scale, decimals)
    return decimals


def write_shown(judged: Judged, record: Record) -> str:
    """``-0.2 [-1.0, +0.5]``: what stands beside the verdict, with the digits that its limits support; a dash for
    nothing."""
    change, metric = shown_of(judged, record), judged.metric
    if change is None or metric is None:
        return formatting.DASH
    least = max(metric.least, formatting.decimals(change.interval, metric.scale))
    least = count_decimals([change], metric.scale, least)
    signed = not holds_against_fp32(judged)
    return formatting.with_limits(change.interval, scale=metric.scale, signed=signed, least=least)


def describe_levels(judged: Judged, records: Sequence[Record]) -> str:
    """``90 % limits, those of the test``: which limits stand beside the verdicts of these cases."""
    changes = [shown_of(judged, record) for record in records if record.status == "ok"]
    return name_levels(
        (change.level, change.tested) for change in changes if change is not None and change.interval.low is not None
    )


def name_levels(levels: Iterable[tuple[float, bool]]) -> str:
    """The same of the level of each, and whether these limits are those of the test."""
    limited = set(levels)
    tested = sorted({level for level, of_test in limited if of_test})
    if not tested:
        return _name(STORED_LEVEL)
    tests = f"{_name(tested[0])}, those of the test"
    other_levels = {*tested[1:], *(level for level, of_test in limited if not of_test)} - {tested[0]}
    return tests if not other_levels else f"{tests} ({max(other_levels) * 100:g} % without predictions to test)"


def _name(level: float) -> str:
    return f"{level * 100:g} % limits"
