"""The rules of a race, from the times measured so far: who stays, who leads, and whether it is decided; pure.

Arms are held against the leader of their kind: int8 candidates against the fastest of them, fp32 against the fastest
fp32. An arm leaves after the screening when it is shown to be more than ``tie`` slower, at 99.9 % shared over the arms;
later when its estimate is, so that the decision does not ship it, and it is shown at 99 % to be more than half of that
slower: half of the tie is shown in fewer generations than all of it, and splits copies of one artifact no more often
(tests/benchmarks/race_error.py).

The error of a difference comes from how differences vary between generations of processes, pooled over the arms, beside
what is known of processes (``process_spread.RATIO_SPREAD``) and the noise of its own blocks lead to expect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from qbench.machine.process_spread import FREEDOM, RATIO_SPREAD
from qbench.measure.gain_over_fp32 import find_gain, is_gain_settled
from qbench.measure.paired_difference import (
    LEVEL,
    PairedDifference,
    add_unseen,
    compare_minima,
    quantile_of_t,
    variance_of_median,
)
from qbench.measure.pairing import Minima, PairedBlocks, pair_blocks

Role = Literal["fp32", "candidate", "screened_only"]
# The chance that an arm that is not slower is sent away in one look, shared over the arms: after the screening, which
# rests on what is known of processes in general, and after each later generation.
LEAVE_SCREENING, LEAVE = 0.001, 0.01
MOST_GENERATIONS = 9  # after the screening
# Differences to one leader share its noise: their correlation is 1/2, that of their squares 1/4.
SHARED = 0.25
# Generations whose variance is so many times as expected show that what is known of processes does not hold here (95 %
# of F with 10 and 6 degrees of freedom is 4.1).
UNHEARD_OF = 4.0


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A case in a race; ``baseline``: its like-for-like fp32 (None for fp32)."""

    case: str
    role: Role
    baseline: str | None = None


@dataclass(frozen=True, kw_only=True)
class RaceRules:
    """When arms leave and when the race ends.

    ``tie`` and ``precision`` are shares. ``least`` and ``most`` count the generations after the screening (``most`` 0:
    there is nothing but the screening); ``max_seconds`` of blocks for one arm; ``everything``: nobody leaves.
    """

    tie: float = 0.03
    precision: float = 0.02
    least: int = 3
    most: int = MOST_GENERATIONS
    max_seconds: float = math.inf
    everything: bool = False

    @property
    def enough(self) -> float:
        """The half width at which a difference between arms is known well enough: nobody ships for what is finer than
        the tie."""
        return max(self.tie, self.precision)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a race stands after a generation: the arms that stay, those that leave now, the fastest candidate and the
    fastest fp32 (None: there is none). ``ended``: why each staying arm needs no further generation, empty while the
    race goes on; ``more``: about how many generations are still to come."""

    staying: tuple[Arm, ...]
    leaving: tuple[str, ...]
    leader: str | None
    fastest: str | None
    ended: Mapping[str, str] = field(default_factory=dict)
    more: int = 0


def judge(
    arms: Sequence[Arm],
    minima: Mapping[str, Minima],
    rules: RaceRules,
    *,
    spent: Mapping[str, float],
    tried: int | None = None,
) -> Standing:
    """How the race of these arms, all that are still in, stands. ``minima``: the fastest call of every block of each
    (``pairing.list_minima``); ``spent``: seconds of its blocks. ``tried``: how many candidates there were at first, of
    which the best will be held against fp32 (None: those that are in)."""
    generations = _count_generations(arms, minima)
    fp32 = _rank([arm for arm in arms if arm.role == "fp32"], minima)
    candidates = _rank([arm for arm in arms if arm.role == "candidate"], minima)
    staying_cases = {arm.case for arm in arms}
    if not rules.everything:
        staying_cases = {arm.case for arm in arms if arm.role == "candidate"} - candidates.find_slower(rules)
        needed = {arm.baseline for arm in arms if arm.case in staying_cases} | {fp32.leader}
        staying_cases |= {arm.case for arm in arms if arm.role == "fp32"} - (fp32.find_slower(rules) - needed)
    staying = tuple(arm for arm in arms if arm.case in staying_cases)
    later = generations - (not rules.everything)  # the screening is none of the final's
    longest = max((spent[arm.case] for arm in staying), default=0.0)
    end: str | int = rules.least - later
    if later >= rules.least:
        tried = tried or sum(arm.role == "candidate" for arm in arms)
        gain = find_gain(candidates.leader, fp32.leader, minima)
        unshown = gain is not None and not is_gain_settled(gain, rules.enough, tried)
        ranking = candidates if candidates.leader else fp32
        end = _find_end(staying, minima, rules, generations, ranking, gain if unshown else None)
        if isinstance(end, int) and longest >= rules.max_seconds:
            end = "max_seconds"
    return Standing(
        staying=staying,
        leaving=tuple(arm.case for arm in arms if arm.case not in staying_cases),
        leader=candidates.leader,
        fastest=fp32.leader,
        ended={arm.case: _name_end(arm, end, candidates, rules) for arm in staying} if isinstance(end, str) else {},
        more=end if isinstance(end, int) else 0,
    )


def _count_generations(arms: Sequence[Arm], minima: Mapping[str, Minima]) -> int:
    """How many generations the candidates have been in, or the fp32 where there are none: an fp32 may be in several
    heats of one."""
    counts = {arm.case: len({process for process, _ in minima[arm.case]}) for arm in arms}
    rivals = [counts[arm.case] for arm in arms if arm.role == "candidate"]
    return max(rivals or counts.values(), default=0)


@dataclass(frozen=True, kw_only=True)
class _Ranking:
    """The arms of one kind held against the fastest of them (None: there is none); ``apart``: the same of those that
    never ran beside it, since they were in other heats."""

    leader: str | None
    differences: Mapping[str, PairedDifference]
    apart: _Ranking | None = None

    def find_slower(self, rules: RaceRules) -> set[str]:
        """Those that will not be shipped, of all or of their own heats: their estimate is beyond the tie, and they are
        shown to be slower than the leader by half of it or more."""
        screening = all(difference.generations == 1 for difference in self.differences.values())
        share = 1 - (LEAVE_SCREENING if screening else LEAVE) / max(1, len(self.differences))
        tie = math.log1p(rules.tie)
        shown = tie if screening else tie / 2
        slower = {
            case
            for case, difference in self.differences.items()
            if difference.value > tie
            and difference.value - quantile_of_t(share, difference.freedom) * difference.error > shown
        }
        return slower | (set() if self.apart is None else self.apart.find_slower(rules))

    def list_apart(self) -> set[str]:
        """Those that never ran beside the leader."""
        return (
            set()
            if self.apart is None
            else {*self.apart.differences, *self.apart.list_apart(), self.apart.leader or ""}
        )

    def is_tied(self, case: str, rules: RaceRules) -> bool:
        """Whether a case is shown to be no more than the tie slower than the leader."""
        return case in self.differences and self.differences[case].limits()[1] <= math.log1p(rules.tie)


def _rank(arms: Sequence[Arm], minima: Mapping[str, Minima]) -> _Ranking:
    cases = [arm.case for arm in arms if minima[arm.case]]
    if not cases:
        return _Ranking(leader=None, differences={})
    leader = find_fastest(cases, minima)
    series = {case: pair_blocks(minima[case], minima[leader], alike=True) for case in cases if case != leader}
    met = {case: blocks for case, blocks in series.items() if blocks.log_ratios}
    others = [arm for arm in arms if arm.case in series and arm.case not in met]
    apart = _rank(others, minima) if others else None
    return _Ranking(leader=leader, differences=pool_differences(met), apart=apart)


def find_fastest(cases: Sequence[str], minima: Mapping[str, Minima]) -> str:
    """The case with the least time, from rounds shared with the one that ran in the most; from plain times where two
    never met."""
    reference = max(cases, key=lambda case: len(minima[case]))

    def place(case: str) -> float:
        difference = compare_minima(minima[case], minima[reference])
        if difference is not None:
            return difference.value
        times = [np.log([block.nanoseconds for block in minima[name].values()]).mean() for name in (case, reference)]
        return float(times[0] - times[1])

    return min(cases, key=place)


def pool_differences(series: Mapping[str, PairedBlocks]) -> dict[str, PairedDifference]:
    """The difference of each case to one common other, from its blocks beside it; all share one estimate of how
    many times as much generations differ as is expected of processes in general and of the case's own blocks."""
    medians = {
        case: np.asarray([float(np.median(ratios)) for ratios in blocks.log_ratios.values()])
        for case, blocks in series.items()
    }
    expected = {
        case: RATIO_SPREAD**2 + float(np.mean([variance_of_median(ratios) for ratios in blocks.log_ratios.values()]))
        for case, blocks in series.items()
    }
    together = 1 / (1 + SHARED * max(0, len(medians) - 1))
    squares = together * sum(
        float(((values - values.mean()) ** 2).sum()) / expected[case] for case, values in medians.items()
    )
    seen_freedom = together * sum(len(values) - 1 for values in medians.values())
    prior = FREEDOM if squares <= UNHEARD_OF * seen_freedom else 0
    freedom = prior + seen_freedom
    scale = (prior + squares) / freedom
    differences = {}
    for case, values in medians.items():
        error, worth = add_unseen(scale * expected[case] / len(values), freedom, series[case].unseen)
        differences[case] = PairedDifference(
            value=float(values.mean()),
            error=error,
            freedom=worth,
            generations=len(values),
            coarse=len(values) == 1,
            unseen=series[case].unseen,
            seen_freedom=freedom,
        )
    return differences


def _find_end(
    staying: Sequence[Arm],
    minima: Mapping[str, Minima],
    rules: RaceRules,
    generations: int,
    ranking: _Ranking,
    gain: PairedDifference | None,
) -> str | int:
    """Why the race needs no further generation, or about how many more there will be. ``gain``: the leader's over the
    fastest fp32, where that is not settled."""
    if rules.everything:
        open_, most = _list_wide(staying, minima, rules), rules.most
    else:
        open_ = [*_list_unsettled(staying, rules, ranking), *([] if gain is None else [gain])]
        most = rules.most + 1
    unmet = not rules.everything and bool(ranking.list_apart() & {arm.case for arm in staying})
    if not open_ and not unmet:
        return "precision"
    if generations >= most:
        return "processes"
    if not open_:
        return 1
    widest = max(difference.half_width_seen() for difference in open_)
    precision = rules.precision if rules.everything else rules.enough
    needed = math.ceil(generations * (widest / math.log1p(precision)) ** 2)
    return max(1, min(most, needed) - generations)


def _list_unsettled(staying: Sequence[Arm], rules: RaceRules, ranking: _Ranking) -> list[PairedDifference]:
    """What a further generation could still tell: differences to the leader that are neither shown within the tie, nor
    beyond it, nor precise."""
    stay = {arm.case for arm in staying}
    slower = ranking.find_slower(rules)
    return [
        difference
        for case, difference in ranking.differences.items()
        if case in stay
        and case not in slower
        and not ranking.is_tied(case, rules)
        and not _is_precise(difference, rules.enough)
    ]


def _list_wide(staying: Sequence[Arm], minima: Mapping[str, Minima], rules: RaceRules) -> list[PairedDifference]:
    """The differences to the like-for-like fp32 that are not yet precise."""
    known = [
        compare_minima(minima[arm.case], minima[arm.baseline])
        for arm in staying
        if arm.baseline is not None and arm.baseline in minima
    ]
    return [
        difference for difference in known if difference is not None and not _is_precise(difference, rules.precision)
    ]


def _is_precise(difference: PairedDifference, share: float) -> bool:
    return difference.half_width_seen(LEVEL) <= math.log1p(share)


def _name_end(arm: Arm, ended: str, candidates: _Ranking, rules: RaceRules) -> str:
    """How one of the arms that were in to the end stopped."""
    if rules.everything or arm.role != "candidate":
        return ended
    rivals = set(candidates.differences) - candidates.find_slower(rules)
    if arm.case == candidates.leader:
        if not rivals:
            return "decided"
        return "tied" if all(candidates.is_tied(case, rules) for case in rivals) else ended
    if arm.case not in rivals:
        return "decided"
    return "tied" if candidates.is_tied(arm.case, rules) else ended
