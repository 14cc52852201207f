"""The next step: what would decide what is open of an answer, with its number and its command, or that nothing is
open; pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from qbench import formatting
from qbench.compare import text as compare_text
from qbench.decide import cases
from qbench.decide.choose import Choice
from qbench.decide.decider import MOST_PROCESSES, count_more_processes, find_decider
from qbench.decide.judged import Judged
from qbench.decide.limits import LimitCheck
from qbench.decide.paired_times import Comparison
from qbench.decide.sureness import Sureness
from qbench.decide.tie import Contest
from qbench.modes import is_int8
from qbench.record.schema import Record

NOTHING = "Nothing is open."


def find_next_step(
    choice: Choice, rival: Record | None, records: Sequence[Record], judged: Judged, contest: Contest
) -> str:
    """What to do next of a setting whose cases all have a record; ``rival``: what may be the best as well."""
    pick = choice.pick
    if choice.verdict == "no answer":
        return _explain_no_answer(records, judged)
    if choice.verdict == "none qualifies" or pick is None:
        explained = [record for record in choice.measured if is_int8(record.case.mode)]
        if not explained:
            return NOTHING
        nearest = min(explained, key=lambda record: cases.p50(record) or math.inf)
        return f"{_explain(nearest, judged)} says why the fastest is ruled out, and what to try."
    if choice.verdict == "undecided":
        return _decide_limit(pick, judged)
    if choice.verdict == "keep fp32":
        return _decide_gain(choice, pick, judged, contest)
    return NOTHING if rival is None else _decide_between(choice, pick, rival, judged, contest)


def resume(judged: Judged) -> str:
    """How planned cases without a record get one."""
    return f"`qbench run --resume {judged.source.run}` measures what is missing."


def measure_again(sure: Sureness, judged: Judged) -> str:
    """What makes an answer surer that its noise, or an output that nobody judged, holds back."""
    if sure.because is not None and "output" in sure.because:
        return f"Judge the other outputs (`output:` beside the model's name), then `qbench run {judged.source.suite}`."
    return wait_for_quiet(judged)


def wait_for_quiet(judged: Judged) -> str:
    """What is left where noise hides a difference."""
    return f"`qbench run {judged.source.suite}` again when the machine is quiet; `qbench doctor` shows its noise."


def _explain(record: Record, judged: Judged) -> str:
    """The command that explains a case."""
    return f"`qbench explain {judged.source.run} {shlex.quote(record.case.id)}`"


def _explain_no_answer(records: Sequence[Record], judged: Judged) -> str:
    if any(cases.is_contender(record) and cases.is_unmeasured(record) for record in records):
        return f"`qbench portability {judged.source.run}` compares what this host answers."
    left = [record for record in records if record.status in ("failed", "skipped")]
    what = "what the failed and skipped cases name" if left else "the suite's matrix: nothing but fp32 is in it"
    return f"Mend {what}, then `qbench run {judged.source.suite}`."


def _decide_limit(pick: Record, judged: Judged) -> str:
    """What decides the first limit that is open."""
    check = next((check for check in judged.checks_of(pick) if check.outcome != "PASS"), None)
    needed = None if check is None else count_needed_examples(check)
    if needed is not None:
        return add_examples(needed, judged)
    if check is not None and check.outcome == "INCONCLUSIVE":
        if cases.is_sequential(pick):
            return f"`qbench run {judged.source.suite} --set measure.protocol=paired` measures its limits."
        processes = 4 * (1 if pick.speedup is None else pick.speedup.processes)
        return f"{_run_with(processes, _expect_seconds(pick, processes), judged)} about halves its limits."
    return f"{_explain(pick, judged)} says what is missing." if is_int8(pick.case.mode) else NOTHING


def count_needed_examples(check: LimitCheck) -> str | None:
    """``about 1,800 examples``: how many would decide an accuracy that is open; None where it is not."""
    accuracy = check.record.accuracy
    if check.test is None or accuracy is None or check.test.outcome != "INCONCLUSIVE":
        return None
    return compare_text.would_decide(check.test, accuracy.n) or compare_text.count_examples(None, accuracy.n)


def add_examples(needed: str, judged: Judged) -> str:
    """How so many examples come into the next run."""
    return (
        f"{needed[0].upper()}{needed[1:]} in data.evaluate would decide it: add them, then "
        f"`qbench run {judged.source.suite}`."
    )


def _decide_gain(choice: Choice, pick: Record, judged: Judged, contest: Contest) -> str:
    """What would show a gain of int8 over the fp32 that stays, where it has one that can be shown."""
    assert choice.fp32 is not None
    comparison = contest.objective.compare(pick, choice.fp32)
    if comparison.value >= 0 or contest.spec.minimize != "latency":
        why = f"; {_explain(pick, judged)} says why int8 gains no more" if is_int8(pick.case.mode) else ""
        return f"{NOTHING[:-1]}{why}."
    step = _measure_longer(comparison, pick, abs(comparison.value), judged)
    return step or f"{NOTHING[:-1]} that more measuring would show."


def _decide_between(choice: Choice, pick: Record, rival: Record, judged: Judged, contest: Contest) -> str:
    decider = find_decider(choice, rival, judged, contest)
    if decider.kind == "limit":
        return _decide_limit(rival, judged)
    if decider.kind == "examples":
        if decider.is_worth_it:
            return add_examples(decider.examples, judged)
        return (
            f"{NOTHING[:-1]} that is worth it ({decider.examples} would decide, there are {decider.there:,}): take the "
            "former."
        )
    if decider.kind == "same file":
        return f"{NOTHING[:-1]}: they are the same file, byte for byte, so take either."
    if decider.kind == "tied":
        return f"{NOTHING[:-1]}: they tie, and nothing that decide.prefer names tells them apart, so take either."
    if decider.kind == "tie's edge":
        return f"{NOTHING[:-1]} that more processes would decide: they are about a tie apart; take the former."
    if decider.kind == "apart":
        return f"`qbench run {judged.source.suite}` anew measures them side by side."
    comparison = contest.objective.compare(rival, pick)
    room = abs(abs(comparison.value) - contest.tie)
    return _measure_longer(comparison, pick, room, judged) or wait_for_quiet(judged)


def _measure_longer(comparison: Comparison, pick: Record, room: float, judged: Judged) -> str | None:
    """The processes, and the minutes that they take, which would tell a difference; None where no number would."""
    _, needed = count_more_processes(comparison.difference, pick, room)
    if needed > MOST_PROCESSES or comparison.evidence not in ("rounds", "baseline"):
        return None
    seconds = _expect_seconds(pick, needed)
    return f"{_run_with(needed, seconds, judged)} would decide it (up to {formatting.duration(seconds, 2)} a case)."


def _expect_seconds(pick: Record, processes: int) -> int:
    """What measuring a case like the pick in so many processes takes at most, by what it took."""
    speedup = pick.speedup
    each = speedup.measured_seconds / speedup.processes if speedup and speedup.measured_seconds else 10.0
    return max(30, math.ceil(1.2 * processes * each / 10) * 10)


def _run_with(processes: int, seconds: int, judged: Judged) -> str:
    keys = f"--set measure.processes={processes} --set measure.max_seconds={seconds}"
    return f"`qbench run {judged.source.suite} {keys}`"
