"""On which side a candidate's time lies: the gate's sequential test, held against half of the whole change; pure.

The ends come first: is the bad one slower than the good one by more than what is worth a search (``LEAST``)? Its change
must be known well enough to be halved. Every other candidate is then asked whether it has more than half of it, by
fresh process pairs of the good end twice and of the candidate, as the gate runs them (``gating.sequential_test``). A
change of 2 % has its threshold at 1 %, so that looks go on to four times as many pairs as the gate's; but not at one
that is shown to lie between both ends, near to half-way, where a change comes in several steps.

The probability that a candidate has more than half is that of Student's t, from its pairs and from those that the half
rests on, with nothing assumed about how slow it is: so it holds, too, where the change came in several steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qbench.bisect.search import Judged, Side
from qbench.gating.sequential_test import InterimAnalysis, ProcessPair, Schedule, analyze, estimate_pairs
from qbench.stats.interval_type import Interval

LOOKS = Schedule(analyses=(3, 6, 12, 24, 48))
LEAST = 0.01  # a smaller change of time is none that a search is for
# The whole change must be known to that part of it: half of it is then off by a sixth at most, and lies between nothing
# and all of it.
KNOWN_TO = 1 / 3
BETWEEN = "it has a part of the change: slower than the good end, faster than the bad one"


@dataclass(frozen=True, kw_only=True)
class TimeChange:
    """The whole change from the good to the bad end, as the logarithm of a ratio of times, and its standard error with
    its degrees of freedom."""

    log: float
    error: float
    freedom: int

    @property
    def half(self) -> float:
        """Half of it, as a share of the time: the tolerance that candidates are held against."""
        return math.expm1(self.log / 2)


def next_look(pairs: int) -> int | None:
    """How many process pairs the next look takes, after so many; None after the last look."""
    return next((count for count in LOOKS.analyses if count > pairs), None)


def judge_end(pairs: Sequence[ProcessPair], least: float = LEAST) -> Judged:
    """The bad end beside the good one: ``good`` where it is not slower by more than ``least``."""
    looked_at = _up_to_look(pairs)
    if not looked_at:
        return Judged(side="open", p_bad=None, more=True)
    analysis = _analyze_end(looked_at, least)
    more = next_look(len(pairs)) is not None
    if analysis.outcome == "FAIL" and more and not _is_known(analysis):
        return _judge(analysis, "open", None, more=True)
    if analysis.outcome == "INCONCLUSIVE":
        return _judge(analysis, "open", None, more=more)
    side: Side = "bad" if analysis.outcome == "FAIL" else "good"
    return _judge(analysis, side, 1.0 if side == "bad" else 0.0, more=more)


def measure_change(pairs: Sequence[ProcessPair]) -> TimeChange:
    """The whole change by the pairs of the bad end."""
    analysis = _analyze_end(_up_to_look(pairs), LEAST)
    return TimeChange(log=math.log(analysis.slowdown.value), error=_find_error(analysis), freedom=analysis.freedom)


def judge_candidate(pairs: Sequence[ProcessPair], change: TimeChange) -> Judged:
    """A candidate between the ends."""
    looked_at = _up_to_look(pairs)
    if not looked_at:
        return Judged(side="open", p_bad=None, more=True)
    analysis = analyze(looked_at, change.half, schedule=LOOKS, told_apart=math.expm1(change.log))
    sides: dict[str, Side] = {"FAIL": "bad", "PASS": "good", "INCONCLUSIVE": "open"}
    if analysis.outcome == "INCONCLUSIVE" and analysis.doubt is None and _is_between(analysis, change):
        judged = _judge(analysis, "open", _find_p_bad(analysis, change), more=False)
        return replace(judged, reason=BETWEEN)
    return _judge(
        analysis, sides[analysis.outcome], _find_p_bad(analysis, change), more=next_look(len(pairs)) is not None
    )


def compare_neighbours(before: Interval | None, behind: Interval | None) -> Interval | None:
    """The ratio of two candidates' times that were both measured beside the good end; None where one was not."""
    if before is None or behind is None or None in (before.low, before.high, behind.low, behind.high):
        return None
    halves = [math.log(ratio.high / ratio.low) / 2 for ratio in (before, behind)]  # type: ignore[operator]
    log, half = math.log(behind.value / before.value), math.hypot(*halves)
    return Interval(value=math.exp(log), low=math.exp(log - half), high=math.exp(log + half))


def _up_to_look(pairs: Sequence[ProcessPair]) -> Sequence[ProcessPair]:
    """The pairs that the last look took."""
    return pairs[: max((count for count in LOOKS.analyses if count <= len(pairs)), default=0)]


def _analyze_end(pairs: Sequence[ProcessPair], least: float) -> InterimAnalysis:
    mean = math.fsum(pair.change for pair in pairs) / len(pairs)
    return analyze(pairs, least, schedule=LOOKS, told_apart=max(least, abs(math.expm1(mean))))


def _judge(analysis: InterimAnalysis, side: Side, p_bad: float | None, *, more: bool) -> Judged:
    return Judged(
        side=side, p_bad=p_bad, more=more, value=analysis.slowdown, size=analysis.pairs, reason=analysis.doubt
    )


def _is_between(analysis: InterimAnalysis, change: TimeChange) -> bool:
    """Whether it is shown to be slower than the good end, and faster than the bad one, and so near to half-way that the
    last look would not tell."""
    low, high = analysis.slowdown.low, analysis.slowdown.high
    if low is None or high is None:
        return False
    from scipy.special import stdtrit

    reach = float(stdtrit(change.freedom, (1 + analysis.level) / 2)) * change.error
    if analysis.pairs < LOOKS.analyses[-2] or low <= 1 or math.log(high) >= change.log - reach:
        return False  # fewer pairs say too little of how near it is
    needed = estimate_pairs(analysis, 1 + change.half)
    return needed is None or needed > LOOKS.analyses[-1]


def _is_known(analysis: InterimAnalysis) -> bool:
    low, high = analysis.slowdown.low, analysis.slowdown.high
    if low is None or high is None:
        return False
    return math.log(high / low) / 2 <= KNOWN_TO * abs(math.log(analysis.slowdown.value))


def _find_error(analysis: InterimAnalysis) -> float:
    """The standard error of the logarithm of the ratio, from its limits; infinite without any."""
    from scipy.special import stdtrit

    low, high = analysis.slowdown.low, analysis.slowdown.high
    if low is None or high is None:
        return math.inf
    return math.log(high / low) / 2 / float(stdtrit(analysis.freedom, (1 + analysis.level) / 2))


def _find_p_bad(analysis: InterimAnalysis, change: TimeChange) -> float:
    from scipy.special import stdtr

    error = math.hypot(_find_error(analysis), change.error / 2)
    distance = math.log(analysis.slowdown.value) - change.log / 2
    return 0.5 if math.isinf(error) else float(stdtr(min(analysis.freedom, change.freedom), distance / error))
