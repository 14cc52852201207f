"""What decides among variants that tie: the preferences of ``decide.prefer``, each with what it drops and why; pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from qbench import formatting
from qbench.decide.accuracy_difference import AccuracyDifference
from qbench.decide.cases import variant
from qbench.decide.objective import Objective
from qbench.decide.tie import Contest
from qbench.modes import needs_calibration, needs_training
from qbench.record.schema import Record
from qbench.stats.interval_type import Interval
from qbench.suite.settings import Preference

# What a variant of a mode needs that others do not.
NEEDS: Mapping[Preference, Callable[[str], bool]] = {"no_training": needs_training, "no_calibration": needs_calibration}


@dataclass(frozen=True, kw_only=True)
class PreferenceStep:
    """One preference that told the tied apart: what was ``dropped`` by it, and the numbers."""

    name: Preference
    dropped: tuple[Record, ...]
    text: str


def _prefer_accurate(tied: Sequence[Record], contest: Contest) -> PreferenceStep | None:
    """Drops what is less accurate than the most accurate one beyond chance, and by more than the tie in accuracy."""
    compare = contest.differences.compare
    known = [each for each in tied if any(compare(each, rival) is not None for rival in tied if rival is not each)]
    if not known:
        return None
    best = known[0]
    for record in known[1:]:
        difference = compare(record, best)
        if difference is not None and difference.value > 0:
            best = record
    against = {record.case.id: compare(best, record) for record in tied if record is not best}
    dropped = [
        record
        for record in tied
        if (difference := against.get(record.case.id)) is not None
        and difference.beyond_chance
        and difference.value > contest.accuracy_tie
    ]
    if not dropped:
        return None
    difference = against[dropped[0].case.id]
    assert difference is not None
    amount = describe_difference(difference, contest)
    text = f"accuracy: {variant(best)} against {variant(dropped[0])} {amount}, more than {contest.name_accuracy_tie()}"
    return PreferenceStep(name="accuracy", dropped=tuple(dropped), text=text)


def describe_difference(difference: AccuracyDifference, contest: Contest) -> str:
    """``+5.2 points (623 examples gained, 101 lost)``."""
    metric = contest.metric
    scale, unit, least = (metric.scale, metric.unit, metric.least) if metric else (1.0, "", 0)
    sign = metric.sign if metric else 1.0
    reach = 1.96 * difference.error
    value = sign * difference.value
    amount = formatting.number(
        Interval(value=value, low=value - reach, high=value + reach), scale=scale, signed=True, least=least
    )
    change = f"{amount} {unit}".rstrip()
    if difference.lost is None or difference.gained is None:
        return change
    plural = "" if difference.gained == 1 else "s"
    return f"{change} ({difference.gained:,} example{plural} gained, {difference.lost:,} lost)"


def _prefer_untrained(tied: Sequence[Record], contest: Contest) -> PreferenceStep | None:
    return _prefer_without("no_training", "training", tied)


def _prefer_uncalibrated(tied: Sequence[Record], contest: Contest) -> PreferenceStep | None:
    return _prefer_without("no_calibration", "calibration", tied)


def _prefer_without(name: Preference, what: str, tied: Sequence[Record]) -> PreferenceStep | None:
    """Drops what needs something, where others do not."""
    needing = [record for record in tied if NEEDS[name](record.case.mode)]
    if not needing or len(needing) == len(tied):
        return None
    plain = next(record for record in tied if record not in needing)
    text = f"{what}: {variant(plain)} needs none, {variant(needing[0])} does"
    return PreferenceStep(name=name, dropped=tuple(needing), text=text)


def _prefer_small(tied: Sequence[Record], contest: Contest) -> PreferenceStep | None:
    return _prefer_by(Objective(name="size", times=contest.objective.times), "size", tied, contest)


def _prefer_quick_start(tied: Sequence[Record], contest: Contest) -> PreferenceStep | None:
    return _prefer_by(Objective(name="cold_start", times=contest.objective.times), "cold_start", tied, contest)


def _prefer_by(
    objective: Objective, name: Preference, tied: Sequence[Record], contest: Contest
) -> PreferenceStep | None:
    """Drops what is shown to be worse than the best in it by more than the tie; what was not measured stays."""
    valued = [record for record in tied if objective.value(record) is not None]
    if not valued or objective.name == contest.objective.name:
        return None
    best = min(valued, key=lambda record: objective.value(record) or math.inf)
    dropped = [record for record in valued if objective.compare(record, best).low > contest.tie]
    if not dropped:
        return None
    figures = (f"{variant(record)} {objective.show(record)}" for record in (best, dropped[0]))
    text = f"{objective.title}: {', '.join(figures)}"
    return PreferenceStep(name=name, dropped=tuple(dropped), text=text)


PREFERENCES: dict[Preference, Callable[[Sequence[Record], Contest], PreferenceStep | None]] = {
    "accuracy": _prefer_accurate,
    "no_training": _prefer_untrained,
    "no_calibration": _prefer_uncalibrated,
    "size": _prefer_small,
    "cold_start": _prefer_quick_start,
}
