"""Of several variants that may be shipped, the one that is: the best in what is minimized, and among those that tie
with it what ``decide.prefer`` says; pure.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from qbench.decide.objective import Objective
from qbench.decide.preferences import PREFERENCES, PreferenceStep
from qbench.decide.tie import Contest, find_tied
from qbench.record.schema import Record


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """``order``: best estimate first. ``tied``: not shown to be worse than the first by more than the tie. ``steps``
    led from these to ``pick``; ``equals`` are those that no step told from it, the pick included."""

    order: tuple[Record, ...]
    tied: tuple[Record, ...]
    pick: Record
    equals: tuple[Record, ...]
    steps: tuple[PreferenceStep, ...]


def rank(candidates: Sequence[Record], contest: Contest) -> Ranking:
    """The ranking of one or more candidates that have a value."""
    order = sort_by_estimate(candidates, contest.objective)
    tied, left = find_tied(order, contest)
    steps = []
    for name in contest.spec.prefer:
        if (step := PREFERENCES[name](left, contest)) is not None:
            steps.append(step)
            left = [record for record in left if record not in step.dropped]
    return Ranking(order=tuple(order), tied=tied, pick=left[0], equals=tuple(left), steps=tuple(steps))


def sort_by_estimate(candidates: Sequence[Record], objective: Objective) -> list[Record]:
    """Best first, each by its estimate against the one that leads; the leader is the one that no other beats."""
    by_value = sorted(candidates, key=lambda record: (objective.value(record) or math.inf, record.case.id))
    leader = by_value[0]
    for _ in by_value:  # comparisons are no order: a better one is followed at most once each
        leader = min(by_value, key=functools.partial(_log_over, leader=leader, objective=objective))
    rest = [record for record in by_value if record is not leader]
    return [leader, *sorted(rest, key=lambda record: _log_over(record, leader, objective))]


def _log_over(record: Record, leader: Record, objective: Objective) -> float:
    return 0.0 if record is leader else objective.compare(record, leader).value
