"""What a decider should know besides: doubts by the gate's own rule, what was passed over, whose gain an accuracy is;
pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from qbench import formatting
from qbench.compare import calibration_seeds, host_share, training_gain
from qbench.compare.speedup_doubt import find_doubt
from qbench.decide import cases, limit_text
from qbench.decide.accuracy_difference import AccuracyDifference
from qbench.decide.cases import variant
from qbench.decide.choose import Choice
from qbench.decide.decider import MOST_PROCESSES, count_more_processes
from qbench.decide.judged import Judged
from qbench.decide.limits import AccuracyFloor, LimitCheck
from qbench.decide.paired_times import MOST_LOG, as_ratio
from qbench.decide.preferences import describe_difference
from qbench.decide.rank import sort_by_estimate
from qbench.decide.tie import Contest
from qbench.record.schema import Record

NAMED = 3  # so many that are ahead, but ruled out, are named
# Where measuring ends before the precision is reached.
ENDS = {
    "max_seconds": "at measure.max_seconds",
    "processes": "after the most generations of processes",
    "screened": "with the screening",
    "cut_short": "since the fp32 beside it died,",
}


def list_notes(choice: Choice, records: Sequence[Record], judged: Judged, contest: Contest) -> tuple[str, ...]:
    """Sentences, the most important first."""
    lines = list[str]()
    if choice.pick is not None:
        lines += _note_unjudged(choice.pick)
        lines += _note_open(choice, choice.pick, judged)
        lines += _note_slower(choice, choice.pick, records, contest)
        if contest.spec.minimize == "latency":
            lines += _note_small_gain(choice, choice.pick, contest)
            lines += _note_apart(choice, choice.pick, contest)
            lines += _note_doubts(choice, choice.pick, judged, contest)
            lines += _note_host(choice.pick)
        lines += _note_seeds(choice.pick, judged)
    lines += [*_note_fast_but_wrong(choice, judged, contest), *_note_training(choice, judged)]
    return (*lines, *_note_failed(records), *_note_problems(contest))


def explain_open(check: LimitCheck) -> str:
    """What is open about a limit, as a half sentence after ``it``."""
    if check.outcome is None:
        return limit_text.describe(check)
    if isinstance(check.bound, AccuracyFloor):
        return f"may or may not reach the least score: {limit_text.describe(check)}"
    if check.limit == "accuracy":
        return f"may or may not lose more accuracy than the margin: {limit_text.describe(check)}"
    return f"may or may not hold its limit on {check.limit}: {limit_text.describe(check)}"


def _note_unjudged(pick: Record) -> Iterator[str]:
    """The outputs that nothing judges, with how far each is from fp32's."""
    if unjudged := cases.list_unjudged(pick):
        outputs = [output for output in (pick.accuracy and pick.accuracy.outputs) or () if output.judged is False]
        told = ", ".join(
            output.name + ("" if output.value is None else f" (sqnr {formatting.fixed(output.value, 1)} dB)")
            for output in outputs
        )
        counted = ", counted from 0" if unjudged[0].isdigit() else ""
        plural = "s" if len(unjudged) > 1 else ""
        yield (
            f"No label judges its output{plural} {told}{counted}: its accuracy is that of the first, and what a loss "
            f"in the rest costs is not known. `output: {unjudged[0]}` beside the model's name judges that one."
        )


def _note_open(choice: Choice, pick: Record, judged: Judged) -> Iterator[str]:
    """What is open of a limit and not said in the answer, which names the first of what is undecided."""
    left = [check for check in judged.checks_of(pick) if check.outcome != "PASS"]
    for check in left[1:] if choice.verdict == "undecided" else left:
        yield f"It {explain_open(check)}."


def _note_small_gain(choice: Choice, pick: Record, contest: Contest) -> Iterator[str]:
    """What would show the gain of a variant that holds every limit, where its estimate has one that can be shown."""
    if choice.verdict != "keep fp32" or choice.fp32 is None or pick not in choice.good:
        return
    comparison = contest.objective.compare(pick, choice.fp32)
    if comparison.value >= 0 or comparison.evidence not in ("rounds", "baseline"):
        return
    there, needed = count_more_processes(comparison.difference, pick, abs(comparison.value))
    gain = formatting.share(math.expm1(-comparison.value))
    if needed <= MOST_PROCESSES:
        yield (
            f"To show its gain of {gain}, about {needed} processes would do (measure.processes, "
            f"measure.max_seconds), there are {there}; or let size decide (decide.minimize)."
        )


def _note_slower(choice: Choice, pick: Record, records: Sequence[Record], contest: Contest) -> Iterator[str]:
    """That what is shipped for its size, memory or start takes longer than the fastest fp32."""
    fastest = cases.fastest_fp32(records)
    if contest.spec.minimize == "latency" or choice.verdict == "keep fp32" or fastest is None:
        return
    comparison = contest.objective.times.compare(pick.case.id, fastest.case.id)
    if comparison is not None and comparison.value > 0:
        verb = "is slower" if comparison.low > 0 else "may be slower"
        ratio = formatting.with_limits(as_ratio(comparison))
        yield f"It {verb} than fp32: {ratio} times as fast as fp32 on {fastest.case.backend}."


def _note_host(pick: Record) -> Iterator[str]:
    """What its p50 is worth, where the host shared the core for long."""
    if (host_share.share_of(pick) or 0.0) >= host_share.HIGH:
        yield f"Its p50: {host_share.describe(pick)}."


def _note_apart(choice: Choice, pick: Record, contest: Contest) -> Iterator[str]:
    """That variants were not measured against each other, where that matters: among those that tie, and over fp32."""
    close = [] if choice.ranking is None else [record for record in choice.ranking.tied if record is not pick]
    apart = [
        variant(record) for record in close if contest.objective.compare(record, pick).evidence in ("apart", "p50")
    ]
    if apart:
        yield (
            f"Too close to call on latency: {', '.join(apart)}, and not measured against each other; a new run "
            "measures them side by side."
        )
    over = None if choice.fp32 is None else contest.objective.compare(pick, choice.fp32)
    if over is not None and over.evidence == "p50":
        yield "It was not measured against the fastest fp32: two typical calls are compared, which may be off by 22 %."
    if (
        over is not None
        and over.evidence == "rounds"
        and over.difference.coarse
        and not _is_shown_worse(choice, contest)
    ):
        measured_in = "one process" if over.difference.generations == 1 else "two processes"
        yield f"Measured in {measured_in} only: its limits rest on how processes differ in general."


def _note_doubts(choice: Choice, pick: Record, judged: Judged, contest: Contest) -> Iterator[str]:
    """Noise, by the same rule as the gate: a control that could explain half of what was decided, a series that
    drifted; and a precision that was not reached."""
    speedup = pick.speedup
    if speedup is None:
        yield "Its speed-up was not measured."
        return
    room, meaning = find_room(choice, pick, contest)
    if (doubt := find_doubt(speedup, room, meaning)) is not None:
        yield f"{doubt[0].upper()}{doubt[1:]}."
    if _is_shown_worse(choice, contest):
        return
    precision = None if judged.rules is None else judged.rules.precision
    if (end := ENDS.get(speedup.stopped or "")) is not None and precision is not None and speedup.low and speedup.high:
        half = math.exp(min(MOST_LOG, math.log(speedup.high) - math.log(speedup.low)) / 2) - 1
        if half > precision:
            yield (
                f"Its measuring ended {end} with a speed-up known to {half * 100:.1f} %, where "
                f"measure.precision asks for {precision * 100:g} %."
            )


def _is_shown_worse(choice: Choice, contest: Contest) -> bool:
    """Whether fp32 stays, since even the best int8 is shown to be worse: knowing it finer would change nothing."""
    if choice.verdict != "keep fp32" or choice.pick is None or choice.fp32 is None:
        return False
    return contest.objective.compare(choice.pick, choice.fp32).low > 0


def find_room(choice: Choice, pick: Record, contest: Contest) -> tuple[float, str]:
    """How far the control may be off: half the distance to fp32, or to the nearest rival that does not tie."""
    room, meaning = math.inf, "half the tie"
    if choice.fp32 is not None:
        room, meaning = abs(contest.objective.compare(pick, choice.fp32).value) / 2, "half the distance to fp32"
    ranking = choice.ranking
    behind = [] if ranking is None else [record for record in ranking.order if record not in ranking.tied]
    if behind and (half := contest.objective.compare(behind[0], pick).value / 2) < room:
        room, meaning = half, f"half the distance to {variant(behind[0])}"
    return (room, meaning) if contest.tie / 2 < room < math.inf else (contest.tie / 2, "half the tie")


def _note_seeds(pick: Record, judged: Judged) -> Iterator[str]:
    spread = judged.seed_spreads.get(pick.case.id)
    if spread is None or judged.metric is None:
        return
    drawn = calibration_seeds.find_warning("Its accuracy", judged.test_of(pick), spread, judged.metric)
    if drawn is not None:
        yield f"{drawn}."


def _note_fast_but_wrong(choice: Choice, judged: Judged, contest: Contest) -> Iterator[str]:
    """What is ahead of what is shipped or kept, and is ruled out, or not decided, by a limit."""
    meant = {"ship": choice.pick, "keep fp32": choice.fp32}.get(choice.verdict)
    if meant is None:
        return
    ahead: dict[str, list[str]] = {}
    for record in sort_by_estimate(choice.measured, contest.objective):
        if record is meant or record in choice.good or contest.objective.compare(record, meant).high >= 0:
            continue
        checks = judged.checks_of(record)
        broken = [check for check in checks if check.outcome == "FAIL"] or [c for c in checks if c.outcome != "PASS"]
        if broken:
            word = "wrong" if broken[0].outcome == "FAIL" and broken[0].limit == "accuracy" else "not shipped"
            ahead.setdefault(word, []).append(f"{variant(record)} ({limit_text.describe(broken[0])})")
    lead = contest.objective.better[0].upper() + contest.objective.better[1:]
    for word, names in ahead.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield f"{lead}, but {word}: {', '.join(names[:NAMED])}{more}."


def _note_training(choice: Choice, judged: Judged) -> Iterator[str]:
    """Of the pick and what ties with it: whose gain it is where qat beats its fp32 beyond chance."""
    tied = [] if choice.ranking is None else list(choice.ranking.tied)
    named = [] if choice.pick is None else [choice.pick, *(record for record in tied if record is not choice.pick)]
    if judged.metric is not None:
        yield from (f"{gain}." for gain in training_gain.describe_training_gains(named, judged.metric))


def _note_failed(records: Sequence[Record]) -> Iterator[str]:
    """A case that broke while it was measured may have been the best."""
    broken = [record for record in records if record.status == "failed" and record.stage == "measure"]
    if broken:
        names = ", ".join(variant(record) for record in broken)
        yield f"Failed while being measured, and not part of the decision: {names}."


def _note_problems(contest: Contest) -> Iterator[str]:
    """Which cases are known by their records alone, since what is stored beside them is gone or damaged."""
    times = contest.objective.times
    for problems, what, rests in (
        (
            times.problems,
            "samples",
            "compared by their records, whose limits nothing that is stored bears out",
        ),
        (contest.differences.problems, "predictions", "compared by their scores, and not by their answers"),
    ):
        if problems:
            names = ", ".join(variant(times.records[case]) for case in sorted(problems))
            yield f"Without {what}, which are gone or damaged: {names}; {rests}."


def describe_accuracy(difference: AccuracyDifference, contest: Contest) -> str:
    """``+0.7 points (3 examples gained, 0 lost), half the margin is 1``; ``-0.4 dB, beside a tie of 1 dB``."""
    if isinstance(contest.bound, AccuracyFloor):
        return f"{describe_difference(difference, contest)}, beside {contest.name_accuracy_tie()}"
    assert contest.metric is not None
    half = contest.accuracy_tie * contest.metric.scale
    return f"{describe_difference(difference, contest)}, half the margin is {half:g}"
