"""The search for the first candidate that is on the bad side, where a look at one may be wrong; pure.

Candidates are numbered along the way from the good end (0) to the bad end (n). What is searched for is the first number
from which on they are bad. The next one to look at halves what is left, as ``git bisect`` does, with three differences:

**Undecided.** A candidate that is open is looked at longer; one that stays open after that, or cannot be judged at all,
is passed by, and the nearest to the middle of the others is taken.

**Chance.** Every look leaves a probability that the candidate is on the bad side, also one that did not decide. Before
any look each of the n answers is as likely as every other. That each is right is then proportional to the product of
the probabilities that all before it are good, and that it and all behind it are bad (Bayes; a noisy binary search with
a posterior, after Horstein, IEEE Transactions on Information Theory 9 (1963), 136-143). One wrong look early leaves all
later ones on one side of it, which is unlikely: the chance falls, and the search goes on.

**Second look.** Where the answer is right with less than ``ENOUGH``, the end of the bracket beyond which more of the
chance lies is looked at longer, and may go to the other side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from qbench.stats.interval_type import Interval

Side = Literal["good", "bad", "open", "skipped"]
ENOUGH = 0.95  # the chance from which on an answer is given
_SURE = 1e-12  # no look is surer than this: a machine can be broken in ways that no sample shows


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What is known of a candidate. ``p_bad``: the probability that it is on the bad side; None where nothing is known
    of that (it cannot run). ``more``: whether a longer look may tell more. ``value``: what it was judged by, beside the
    good end; ``size``: how many process pairs or examples that rests on. ``reason``: why it is not judged, or what it
    was judged by in words; ``output``: the one of several that it was judged by."""

    side: Side
    p_bad: float | None
    more: bool = False
    value: Interval | None = None
    size: int = 0
    reason: str | None = None
    output: str | None = None


@dataclass(frozen=True, kw_only=True)
class Look:
    """What to do next: look at a candidate, or longer at it."""

    candidate: int


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """The end of a search: the last good candidate, the first bad one, and the ``chance`` that the first bad one is
    among those behind ``last_good`` up to ``first_bad``. One that stays open is either, where that is sure enough."""

    last_good: int
    first_bad: int
    chance: float

    @property
    def candidates(self) -> range:
        """Those of which one is the first bad one; of several, all but the last could not be judged."""
        return range(self.last_good + 1, self.first_bad + 1)

    @property
    def is_named(self) -> bool:
        """Whether it is one, and surely enough."""
        return len(self.candidates) == 1 and self.chance >= ENOUGH


def search(judged: Mapping[int, Judged], last: int) -> Look | Bracket:
    """The next candidate to look at, or the answer; ``judged`` by number, of which 0 and ``last`` are the ends.

    Raises ``ValueError`` where the ends are not on their sides: then there is nothing to search for.
    """
    bracket = find_bracket(judged, last)
    low, high = bracket.last_good, bracket.first_bad
    inside = range(low + 1, high)
    undecided = [place for place in inside if (known := judged.get(place)) is not None and known.more]
    if undecided:
        return Look(candidate=_nearest_to_middle(undecided, low, high))
    if fresh := [place for place in inside if place not in judged]:
        return Look(candidate=_nearest_to_middle(fresh, low, high))
    chances = weigh_answers(judged, last)
    best = max(range(low, high), key=chances.__getitem__)
    if chances[best] >= ENOUGH:
        return Bracket(last_good=best, first_bad=best + 1, chance=chances[best])
    if bracket.chance >= ENOUGH:
        return bracket
    before, behind = math.fsum(chances[:low]), math.fsum(chances[high:])
    ends = (low, high) if before > behind else (high, low)
    doubtful = next((place for place in ends if place in judged and judged[place].more), None)
    return bracket if doubtful is None else Look(candidate=doubtful)


def weigh_answers(judged: Mapping[int, Judged], last: int) -> list[float]:
    """The chance of each answer: that the first bad candidate is number 1, 2, … ``last``."""
    logs = [
        math.fsum(_log_chance(known, bad=place >= answer) for place, known in judged.items())
        for answer in range(1, last + 1)
    ]
    most = max(logs)
    weights = [math.exp(log - most) for log in logs]
    return [weight / math.fsum(weights) for weight in weights]


def _log_chance(known: Judged, *, bad: bool) -> float:
    if known.p_bad is None:
        return 0.0
    p_bad = min(max(known.p_bad, _SURE), 1 - _SURE)
    return math.log(p_bad if bad else 1 - p_bad)


def find_bracket(judged: Mapping[int, Judged], last: int) -> Bracket:
    """The first candidate that is known to be bad, and the last good one before it; ``ValueError`` as ``search``."""
    sides = {place: known.side for place, known in judged.items()}
    if sides.get(last) != "bad" or sides.get(0, "good") != "good":
        raise ValueError("a search needs a good end and a bad end")
    high = min(place for place, side in sides.items() if side == "bad")
    low = max((place for place, side in sides.items() if side == "good" and place < high), default=0)
    chance = min(1.0, math.fsum(weigh_answers(judged, last)[low:high]))
    return Bracket(last_good=low, first_bad=high, chance=chance)


def _nearest_to_middle(places: Sequence[int], low: int, high: int) -> int:
    return min(places, key=lambda place: (abs(place - (low + high) / 2), place))
