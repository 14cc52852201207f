"""Filter by every limit, hold what is left against the best fp32, rank: what is shipped in one setting; pure.

"Shown to be better than fp32" is corrected for the number tried by Holm, so that the best of several that are no
better than fp32 is taken for better in at most 2.5 % of runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from qbench.decide import cases, qualify
from qbench.decide.objective import Objective
from qbench.decide.qualify import Checks
from qbench.decide.rank import Ranking, rank, sort_by_estimate
from qbench.decide.tie import Contest
from qbench.measure.paired_difference import SHOWN_ERROR
from qbench.record.schema import Record
from qbench.stats import multiple_testing

Verdict = Literal["ship", "either", "keep fp32", "undecided", "none qualifies", "no answer"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What the rule says: ``pick`` is the int8 variant meant (also where fp32 stays), ``fp32`` what it was held
    against. ``good`` hold every limit; ``open_`` may or may not; ``better`` of both are shown to be better than fp32.
    ``ranking``: how the pick came about, where one is shipped."""

    verdict: Verdict
    pick: Record | None = None
    fp32: Record | None = None
    measured: tuple[Record, ...] = ()
    good: tuple[Record, ...] = ()
    open_: tuple[Record, ...] = ()
    better: tuple[Record, ...] = ()
    ranking: Ranking | None = None


def choose(records: Sequence[Record], checks: Checks, contest: Contest) -> Choice:
    """What is shipped of the records of one setting."""
    objective = contest.objective
    measured = tuple(
        record
        for record in records
        if cases.is_contender(record) and not cases.is_unmeasured(record) and objective.value(record) is not None
    )
    if not measured:
        return Choice(verdict="no answer")
    fp32 = best_fp32(records, contest)
    held = {record.case.id: checks.get(record.case.id, ()) for record in measured}
    good = tuple(record for record in measured if held[record.case.id] and qualify.holds_all(held[record.case.id]))
    open_ = tuple(record for record in measured if record not in good and qualify.may_be_shipped(held[record.case.id]))
    if not good and not open_:
        return Choice(verdict="none qualifies", fp32=fp32, measured=measured)
    better = _list_better((*good, *open_), fp32, objective)
    choice = Choice(verdict="keep fp32", fp32=fp32, measured=measured, good=good, open_=open_, better=better)
    if ship := [record for record in good if record in better]:
        ranking = rank(ship, contest)
        return replace(choice, verdict="ship", pick=ranking.pick, ranking=ranking)
    hopes = [record for record in open_ if record in better or (not good and _may_be_better(record, fp32, objective))]
    if hopes:
        return replace(choice, verdict="undecided", pick=sort_by_estimate(hopes, objective)[0])
    return replace(choice, pick=sort_by_estimate(good or open_, objective)[0])


def best_fp32(records: Sequence[Record], contest: Contest) -> Record | None:
    """The fp32 that leads in what is minimized, whatever its backend, of those that hold `decide`'s own limits: what is
    too slow or too large cannot be kept either."""
    measured = [record for record in records if record.status == "ok" and cases.is_plain_fp32(record)]
    measured = [record for record in measured if not cases.is_unmeasured(record)]
    measured = [record for record in measured if not qualify.breaks_ceiling(record, contest.spec)]
    valued = [record for record in measured if contest.objective.value(record) is not None]
    if not valued:
        return None
    if contest.objective.name == "latency":
        return cases.fastest_fp32(valued)
    return sort_by_estimate(valued, contest.objective)[0]


def _list_better(tried: Sequence[Record], fp32: Record | None, objective: Objective) -> tuple[Record, ...]:
    """Those that are shown to be better than fp32; all of them where no fp32 was measured."""
    if fp32 is None:
        return tuple(tried)
    p_values = [objective.compare(record, fp32).p_not_below(0.0) for record in tried]
    shown = [p <= SHOWN_ERROR for p in multiple_testing.adjust_by_holm(p_values)]
    return tuple(itertools.compress(tried, shown))


def _may_be_better(record: Record, fp32: Record | None, objective: Objective) -> bool:
    """Whether it is not shown to be worse than the fp32 that was measured."""
    assert fp32 is not None
    return objective.compare(record, fp32).low < 0
