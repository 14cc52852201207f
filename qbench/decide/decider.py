"""What would tell the pick from a rival that may be the best as well: examples, processes, or nothing; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from qbench.compare import text as compare_text
from qbench.decide.accuracy_difference import AccuracyDifference
from qbench.decide.choose import Choice
from qbench.decide.judged import Judged
from qbench.decide.limits import LimitCheck
from qbench.decide.paired_times import Comparison
from qbench.decide.tie import Contest
from qbench.measure.paired_difference import PairedDifference
from qbench.record.schema import Record
from qbench.stats import examples_needed, intervals
from qbench.stats.interval_type import Interval
from qbench.stats.thresholds import DECIDING_Z

MOST_PROCESSES = 99
DECIDED = 0.95  # two-sided: as a difference is told from chance
_WORTH = 10  # so many times the examples that are there: beyond, nobody adds them for what a tie is worth

Kind = Literal["limit", "examples", "same file", "tied", "processes", "tie's edge", "noise", "apart"]


@dataclass(frozen=True, kw_only=True)
class Decider:
    """``kind``: a ``limit`` of the rival that is open (``check``); ``examples``, so many in all (``needed``; None: more
    than can be told) where there are ``there``; more ``processes``; nothing, of the ``same file``, of what is
    ``tied`` and not told apart by any preference, of a difference at the ``tie's edge``; less ``noise``; or one run,
    of two that were measured ``apart``."""

    kind: Kind
    check: LimitCheck | None = None
    needed: int | None = None
    there: int = 0

    @property
    def is_worth_it(self) -> bool:
        """Whether that many examples are something to ask for."""
        return self.needed is not None and self.needed <= _WORTH * self.there

    @property
    def examples(self) -> str:
        """``about 1,800 examples``."""
        return compare_text.count_examples(self.needed, self.there)


def find_decider(choice: Choice, rival: Record, judged: Judged, contest: Contest) -> Decider:
    """Of the pick and ``rival``: examples where a limit or the accuracy is open, else processes."""
    assert choice.pick is not None
    if rival in choice.open_:
        check = next(check for check in judged.checks_of(rival) if check.outcome != "PASS")
        return Decider(kind="limit", check=check)
    difference = contest.differences.compare(choice.pick, rival)
    comparison = contest.objective.compare(rival, choice.pick)
    near = abs(comparison.value) <= contest.tie
    if near and difference is not None and "accuracy" in contest.spec.prefer:
        room = abs(abs(difference.value) - contest.accuracy_tie)
        if room < 2 * difference.error and choice.pick.accuracy is not None:
            there = choice.pick.accuracy.n
            return Decider(kind="examples", needed=_count_examples(difference, there, contest), there=there)
    if max(-comparison.low, comparison.high) <= contest.tie:
        artifacts = [record.artifact.sha256 if record.artifact else None for record in (choice.pick, rival)]
        return Decider(kind="same file" if artifacts[0] is not None and artifacts[0] == artifacts[1] else "tied")
    return _find_processes(comparison, contest)


def count_processes(difference: PairedDifference, room: float) -> int:
    """How many generations of processes would tell a difference from a bound that is ``room`` away."""
    spread = difference.error * math.sqrt(difference.generations)
    return math.ceil((DECIDING_Z * spread / room) ** 2) if room > 0 else MOST_PROCESSES + 1


def count_more_processes(difference: PairedDifference, pick: Record, room: float) -> tuple[int, int]:
    """In how many generations of processes the pick was measured, and how many, one more at least, would tell."""
    there = max(difference.generations, 1 if pick.speedup is None else pick.speedup.processes)
    return there, max(count_processes(replace(difference, generations=there), room), there + 1)


def _count_examples(difference: AccuracyDifference, count: int, contest: Contest) -> int | None:
    """How many would tell whether a difference on ``count`` is beyond half the margin."""
    size, reach = abs(difference.value), intervals.normal_quantile(DECIDED) * difference.error
    limits = Interval(value=size, low=size - reach, high=size + reach)
    return examples_needed.for_mean(limits, difference.error**2 * count, count, -contest.accuracy_tie, DECIDED)


def _find_processes(comparison: Comparison, contest: Contest) -> Decider:
    if comparison.evidence in ("apart", "p50"):
        return Decider(kind="apart")
    difference = comparison.difference
    distance = abs(abs(difference.value) - contest.tie)
    if count_processes(difference, distance) > MOST_PROCESSES:
        return Decider(kind="tie's edge" if distance < contest.tie / 2 else "noise")
    return Decider(kind="processes")
