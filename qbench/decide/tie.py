"""What ties: differences, in what is minimized and in accuracy, that nobody should ship for; pure.

A variant is tied with the leader where it is not shown to be worse by more than ``decide.tie``. Among the tied it is
preferred only if its own estimate lies within the tie, too: not to be shown worse is no proof of being as good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qbench.decide.accuracy_difference import AccuracyDifferences
from qbench.decide.limits import AccuracyFloor, AccuracyLimit
from qbench.decide.objective import Objective
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.suite.settings import DecideSpec


@dataclass(frozen=True, kw_only=True)
class Contest:
    """What variants of one setting are held against: what is minimized, their differences in accuracy,
    the metric and what the suite demands of it, and what the suite prefers."""

    objective: Objective
    differences: AccuracyDifferences
    metric: MetricInfo | None
    bound: AccuracyLimit | None
    spec: DecideSpec

    @property
    def tie(self) -> float:
        """The tie as ln of a ratio."""
        return math.log1p(self.spec.tie)

    @property
    def accuracy_tie(self) -> float:
        """The difference in accuracy that nobody should ship for, in the metric's own scale: half the margin, or a step
        of the metric's where the suite gives a least score."""
        return 0.0 if self.metric is None or self.bound is None else self.bound.tie(self.metric) / self.metric.scale

    def name_accuracy_tie(self) -> str:
        """``half the margin``, or ``a tie of 1 dB`` where there is no margin."""
        if not isinstance(self.bound, AccuracyFloor) or self.metric is None:
            return "half the margin"
        return f"a tie of {self.bound.tie(self.metric):g} {self.metric.unit}".rstrip()


def find_tied(order: Sequence[Record], contest: Contest) -> tuple[tuple[Record, ...], list[Record]]:
    """Those that tie with the first of an order, best estimate first; and of these the ones that may be preferred."""
    leader = order[0]
    tied, near = [leader], [leader]
    for record in order[1:]:
        comparison = contest.objective.compare(record, leader)
        if comparison.low <= contest.tie:
            tied.append(record)
            if comparison.value <= contest.tie:
                near.append(record)
    return tuple(tied), near
