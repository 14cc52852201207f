"""Of several variants that may be shipped, the one that is: the best in what is minimized, and among those that tie
with it what ``decide.prefer`` says; pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.decide.accuracy_difference import AccuracyDifference
from qbench.decide.cases import variant
from qbench.decide.objective import Scale
from qbench.decide.tie import Bench, find_tied
from qbench.record.schema import Record
from qbench.stats.interval_type import Interval
from qbench.suite.settings import Preference


@dataclass(frozen=True, kw_only=True)
class Step:
    """One preference that told the tied apart: what was ``dropped`` by it, and the numbers."""

    name: Preference
    dropped: tuple[Record, ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """``order``: best estimate first. ``tied``: not shown to be worse than the first by more than the tie. ``steps``
    led from these to ``pick``; ``equals`` are those that no step told from it, the pick included."""

    order: tuple[Record, ...]
    tied: tuple[Record, ...]
    pick: Record
    equals: tuple[Record, ...]
    steps: tuple[Step, ...]


def rank(candidates: Sequence[Record], bench: Bench) -> Ranking:
    """The ranking of one or more candidates that have a value."""
    order = sort_by_estimate(candidates, bench.scale)
    tied, left = find_tied(order, bench)
    steps = []
    for name in bench.spec.prefer:
        if len(left) > 1 and (step := PREFERENCES[name](left, bench)) is not None:
            steps.append(step)
            left = [record for record in left if record not in step.dropped]
    return Ranking(order=tuple(order), tied=tied, pick=left[0], equals=tuple(left), steps=tuple(steps))


def sort_by_estimate(candidates: Sequence[Record], scale: Scale) -> list[Record]:
    """Best first, each by its estimate against the one that leads; the leader is the one that no other beats."""
    by_value = sorted(candidates, key=lambda record: (scale.value(record) or math.inf, record.case.id))
    leader = by_value[0]
    for _ in by_value:  # comparisons are no order: a better one is followed at most once each
        best = min(by_value, key=lambda record: _log_over(record, leader, scale))
        if best is leader or _log_over(best, leader, scale) >= 0:
            break
        leader = best
    rest = [record for record in by_value if record is not leader]
    return [leader, *sorted(rest, key=lambda record: _log_over(record, leader, scale))]


def _log_over(record: Record, leader: Record, scale: Scale) -> float:
    if record is leader:
        return 0.0
    comparison = scale.compare(record, leader)
    return math.inf if comparison is None else comparison.value


# --- preferences: each drops some of the tied, or says nothing --------------------------------------------------


def _prefer_accurate(tied: Sequence[Record], bench: Bench) -> Step | None:
    """Drops what is less accurate than the most accurate one beyond chance, and by more than the tie in accuracy."""
    best = tied[0]
    for record in tied[1:]:
        difference = bench.differences.compare(record, best)
        if difference is not None and difference.value > 0:
            best = record
    against = {record.case.id: bench.differences.compare(best, record) for record in tied if record is not best}
    dropped = [
        record
        for record in tied
        if (difference := against.get(record.case.id)) is not None
        and difference.beyond_chance
        and difference.value > bench.accuracy_tie
    ]
    if not dropped:
        return None
    difference = against[dropped[0].case.id]
    assert difference is not None
    shown = describe_difference(difference, bench)
    text = f"accuracy: {variant(best)} against {variant(dropped[0])} {shown}, more than {bench.name_accuracy_tie()}"
    return Step(name="accuracy", dropped=tuple(dropped), text=text)


def describe_difference(difference: AccuracyDifference, bench: Bench) -> str:
    """``+5.2 points (623 examples gained, 101 lost)``."""
    metric = bench.metric
    scale, unit, least = (metric.scale, metric.unit, metric.least) if metric else (1.0, "", 0)
    sign = metric.sign if metric else 1.0
    reach = 1.96 * difference.error
    value = sign * difference.value
    amount = formatting.number(
        Interval(value=value, low=value - reach, high=value + reach), scale=scale, signed=True, least=least
    )
    shown = f"{amount} {unit}".rstrip()
    if difference.lost is None or difference.gained is None:
        return shown
    plural = "" if difference.gained == 1 else "s"
    return f"{shown} ({difference.gained:,} example{plural} gained, {difference.lost:,} lost)"


def _prefer_untrained(tied: Sequence[Record], bench: Bench) -> Step | None:
    trained = [record for record in tied if record.case.mode == "qat"]
    if not trained or len(trained) == len(tied):
        return None
    kept = next(record for record in tied if record not in trained)
    text = f"no_training: {variant(kept)} needs no training, {variant(trained[0])} does"
    return Step(name="no_training", dropped=tuple(trained), text=text)


def _prefer_small(tied: Sequence[Record], bench: Bench) -> Step | None:
    return _prefer_by(Scale(objective="size", times=bench.scale.times), "size", tied, bench)


def _prefer_quick_start(tied: Sequence[Record], bench: Bench) -> Step | None:
    return _prefer_by(Scale(objective="cold_start", times=bench.scale.times), "cold_start", tied, bench)


def _prefer_by(scale: Scale, name: Preference, tied: Sequence[Record], bench: Bench) -> Step | None:
    """Drops what is shown to be worse than the best in it by more than the tie; what was not measured stays."""
    known = [record for record in tied if scale.value(record) is not None]
    if len(known) < 2 or scale.objective == bench.scale.objective:
        return None
    best = min(known, key=lambda record: scale.value(record) or math.inf)
    dropped = [
        record
        for record in known
        if record is not best and (comparison := scale.compare(record, best)) is not None and comparison.low > bench.tie
    ]
    if not dropped:
        return None
    text = f"{name}: {variant(best)} {scale.show(best)}, {variant(dropped[0])} {scale.show(dropped[0])}"
    return Step(name=name, dropped=tuple(dropped), text=text)


PREFERENCES: dict[Preference, Callable[[Sequence[Record], Bench], Step | None]] = {
    "accuracy": _prefer_accurate,
    "no_training": _prefer_untrained,
    "size": _prefer_small,
    "cold_start": _prefer_quick_start,
}
