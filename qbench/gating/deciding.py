"""What would decide an INCONCLUSIVE on time: more process pairs where the gate can take them, more processes in a
run, a quieter machine; else that this gate cannot; pure.
"""

from __future__ import annotations

import math
from dataclasses import replace

from qbench.gating.sequential_test import ANALYSES, InterimAnalysis, NotRun, Rerun, estimate_pairs
from qbench.gating.verdict import Verdict
from qbench.record.schema import Speedup
from qbench.stats.interval_type import Interval

MOST_PAIRS = ANALYSES[-1]
# Processes and cold starts of a run beyond which "more of them" is no advice.
MOST_PROCESSES = 100
ON_THE_LIMIT = "the estimate lies on the limit"
AGAIN = "running both again (`qbench gate` without --stored)"


def advise_live(verdict: Verdict, analysis: InterimAnalysis, rerun: Rerun) -> Verdict:
    """An INCONCLUSIVE on artifacts that were run again, with what would decide it."""
    if verdict.outcome != "INCONCLUSIVE":
        return verdict
    assert verdict.threshold is not None
    if analysis.doubt is not None and not rerun.cut:
        return _decide_by(verdict, "a quieter machine, or `qbench gate` again,", "may")
    pairs, done = estimate_pairs(analysis, verdict.threshold), len(rerun.pairs)
    if not rerun.cut:
        return refuse_pairs(verdict, pairs)
    verdict = replace(verdict, reason=f"{verdict.reason}; the time that may be spent was over")
    if pairs is None or pairs > MOST_PAIRS:
        return refuse_pairs(verdict, pairs)
    due = next(count for count in ANALYSES if count >= pairs)
    seconds = (due - done) * rerun.spent / done
    more = f"about {due} process pairs, {seconds:.0f} s more for this case"
    return _decide_by(verdict, f"a larger --max-minutes ({more})")


def refuse_pairs(verdict: Verdict, pairs: int | None) -> Verdict:
    """The INCONCLUSIVE that no gate decides: it would take more process pairs than there are."""
    why = ON_THE_LIMIT if pairs is None else f"about {pairs} process pairs would, and it takes at most {MOST_PAIRS}"
    return replace(verdict, reason=f"{verdict.reason}; this gate cannot decide it: {why}")


def describe_budget(verdict: Verdict, rerun: Rerun) -> Verdict:
    """INCONCLUSIVE: the time that may be spent was over before the first look."""
    done = len(rerun.pairs)
    look = f" (a look takes {ANALYSES[0] * rerun.spent / done:.0f} s)" if done else ""
    decides = f"a larger --max-minutes{look}"
    return _decide_by(replace(verdict, reason="the time that may be spent was over before its first look"), decides)


def advise_stored(verdict: Verdict, not_run: NotRun | None, speedup: Speedup) -> Verdict:
    """An INCONCLUSIVE on the speed-ups of two runs, ``speedup`` that of fewer processes; ``not_run``: why the artifacts
    were not run again, None where that was not asked for."""
    if not_run is None and verdict.outcome == "INCONCLUSIVE":
        return _decide_by(verdict, AGAIN)
    return advise_speedup(verdict, speedup, "in each run")


def advise_speedup(verdict: Verdict, speedup: Speedup, where: str = "") -> Verdict:
    """An INCONCLUSIVE on what a run measured side by side."""
    if verdict.outcome == "INCONCLUSIVE" and speedup.protocol == "sequential":
        return _decide_by(verdict, "the suite run again with `measure: {protocol: paired}`", "may")
    return advise_processes(verdict, speedup.processes, "processes", where)


def advise_processes(verdict: Verdict, count: int, key: str, where: str = "") -> Verdict:
    """An INCONCLUSIVE on what so many processes of a run gave, as ``measure: {key: …}`` asks for them."""
    if verdict.outcome != "INCONCLUSIVE":
        return verdict
    assert verdict.value is not None
    assert verdict.threshold is not None
    interval = Interval(value=verdict.value, low=verdict.low, high=verdict.high)
    more = estimate_processes(interval, verdict.threshold, count)
    if interval.low is None:
        return _decide_by(verdict, f"more {key} (`measure: {{{key}: …}}`)")
    if more is None:
        return _decide_by(verdict, "the suite run again on a quieter machine", "may")
    if more > MOST_PROCESSES:
        return replace(verdict, reason=f"{verdict.reason}; more {key} would hardly decide it: {ON_THE_LIMIT}")
    text = f"about {more} {key.replace('_', ' ')} {where}".rstrip()
    return _decide_by(verdict, f"{text} (`measure: {{{key}: {more}}}`)")


def estimate_processes(interval: Interval, threshold: float, count: int) -> int | None:
    """About how many would bring the limits off the threshold, if the value stayed as it is; None where they are."""
    low, high = interval.low, interval.high
    if low is None or high is None or not low <= threshold <= high:
        return None
    reach, distance = (high - low) / 2, abs(interval.value - threshold)
    if distance * math.sqrt(MOST_PROCESSES) <= reach:
        return MOST_PROCESSES * count + 1
    return max(count + 1, math.ceil(count * (reach / distance) ** 2))


def _decide_by(verdict: Verdict, decides: str, verb: str = "would") -> Verdict:
    return replace(verdict, reason=f"{verdict.reason}; {decides} {verb} decide", decides=decides.removesuffix(","))
