"""How probable it is that the pick is the best, by draws of what is not known exactly; pure and seeded.

Each draw takes, for every variant that may be shipped, a time (Student's t about its estimate against the leader, with
as many degrees of freedom as the generations of processes give), a change of accuracy against its fp32 and a
difference against the pick (normal, by the flips), and then applies the rule to these as if they were the truth. The
pick is the best in a draw where the rule leaves it: alone, or with others that no preference tells from it.

What the draws do not know bounds it in ``sureness``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qbench.decide.choose import Choice
from qbench.decide.judged import Judged
from qbench.decide.limits import LimitCheck
from qbench.decide.objective import Objective
from qbench.decide.preferences import NEEDS
from qbench.decide.tie import Contest
from qbench.record.schema import Record
from qbench.stats import intervals

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray


DRAWS = 4000
FAR = 4.0  # a variant that is so many standard errors beyond the tie is never drawn within it
# From here on the headline names one variant, below it two.
ENOUGH = 0.8


@dataclass(frozen=True, kw_only=True)
class Probability:
    """``pick``: that the pick is the best. ``rival`` is most often the best where the pick is not,."""

    pick: float
    rival: Record | None


def estimate_probability(
    choice: Choice, judged: Judged, contest: Contest, *, draws: int = DRAWS, seed: int = 0
) -> Probability:
    """The probability that the pick of a choice that ships is the best of all that may be shipped."""
    import numpy as np

    assert choice.pick is not None
    assert choice.ranking is not None
    random = np.random.default_rng(seed)
    leader, pick = choice.ranking.order[0], choice.pick
    arms = [record for record in (*choice.good, *choice.open_) if _may_lead(record, leader, contest)]
    logs = np.stack([_draw_log(record, leader, contest, draws, random) for record in arms])
    fp32 = None if choice.fp32 is None else _draw_log(choice.fp32, leader, contest, draws, random)
    holds = np.stack([_draw_limits(record, judged, draws, random) for record in arms])
    allowed = holds if fp32 is None else holds & (logs < fp32)
    against = np.stack([_draw_accuracy(record, pick, contest, draws, random) for record in arms])
    best = _apply_rule(arms, logs, allowed, against, contest)
    is_best = best[arms.index(pick)]
    rivals = [(float((row & ~is_best).mean()), arm) for arm, row in enumerate(best) if arms[arm] is not pick]
    share, arm = max(rivals, default=(0.0, -1))
    return Probability(pick=float(is_best.mean()), rival=arms[arm] if share > 0 else None)


def _may_lead(record: Record, leader: Record, contest: Contest) -> bool:
    if record is leader:
        return True
    difference = contest.objective.compare(record, leader).difference
    return difference.value <= contest.tie + FAR * difference.error


def _draw_log(record: Record, leader: Record, contest: Contest, draws: int, random: Generator) -> NDArray[Any]:
    """ln(record / leader) as it may be in truth."""
    import numpy as np

    if record is leader:
        return np.zeros(draws)
    difference = contest.objective.compare(record, leader).difference
    return difference.value + difference.error * random.standard_t(difference.freedom, draws)


def _draw_limits(record: Record, judged: Judged, draws: int, random: Generator) -> NDArray[Any]:
    """Whether the case holds every limit in truth."""
    import numpy as np

    holds = np.ones(draws, dtype=bool)
    for check in judged.checks_of(record):
        if check.outcome is None:
            return np.zeros(draws, dtype=bool)
        if check.limit == "accuracy":
            holds &= _draw_margin(check, draws, random)
        elif check.outcome == "INCONCLUSIVE":
            holds &= random.random(draws) < 0.5  # undecided: as good as a toss
    return holds


def _draw_margin(check: LimitCheck, draws: int, random: Generator) -> NDArray[Any]:
    import numpy as np

    test, margin = check.test, check.threshold
    assert test is not None
    assert margin is not None
    if test.delta.low is None or test.delta.high is None:
        return np.zeros(draws, dtype=bool)
    error = (test.delta.high - test.delta.low) / 2 / intervals.normal_quantile(test.level)
    return test.delta.value + error * random.standard_normal(draws) > margin


def _draw_accuracy(record: Record, pick: Record, contest: Contest, draws: int, random: Generator) -> NDArray[Any]:
    """The case's metric minus the pick's, better positive, as it may be in truth."""
    import numpy as np

    difference = None if record is pick else contest.differences.compare(record, pick)
    if difference is None:
        return np.zeros(draws)
    return difference.value + difference.error * random.standard_normal(draws)


def _apply_rule(
    arms: Sequence[Record], logs: NDArray[Any], allowed: NDArray[Any], accuracy: NDArray[Any], contest: Contest
) -> NDArray[Any]:
    """Which arms (rows) the rule leaves in each draw (columns), were the draw the truth."""
    import numpy as np

    best = np.where(allowed, logs, math.inf).min(axis=0)
    left: NDArray[Any] = allowed & (logs <= best + contest.tie)
    for name in contest.spec.prefer:
        if name == "accuracy":
            top = np.where(left, accuracy, -math.inf).max(axis=0)
            left &= accuracy >= top - contest.accuracy_tie
        elif name == "no_training" or name == "no_calibration":
            needing = np.asarray([[NEEDS[name](record.case.mode)] for record in arms])
            left &= ~needing | ~(left & ~needing).any(axis=0)
        elif name != contest.objective.name:
            objective = Objective(name=name, times=contest.objective.times)
            values = np.asarray([[objective.value(record) or math.nan] for record in arms])
            least = np.where(left & ~np.isnan(values), values, math.inf).min(axis=0)
            left &= np.isnan(values) | (values <= least * (1 + contest.spec.tie))
    return left
