"""Why each int8 case of a setting is not the pick, counted; what ties with it, and what told it from them; pure."""

from __future__ import annotations

from collections.abc import Sequence

from qbench import formatting
from qbench.compare import int8_share
from qbench.decide import notes
from qbench.decide.cases import is_unmeasured, variant
from qbench.decide.choose import Choice
from qbench.decide.judged import Judged
from qbench.decide.limits import AccuracyFloor, LimitCheck
from qbench.decide.names import name_variant
from qbench.decide.objective import WORDS
from qbench.decide.tie import Contest
from qbench.record.schema import Record, read_case_id
from qbench.stats.interval_type import Interval
from qbench.suite.settings import ObjectiveName

# What a broken limit is called, of one case and of several.
BROKEN = {
    "int8": ("runs nothing in int8", "run nothing in int8"),
    "peak": ("is faster than this core can be", "are faster than this core can be"),
    "accuracy": ("loses more accuracy than the margin", "lose more accuracy than the margin"),
    "floor": ("is below gate.accuracy.at_least", "are below gate.accuracy.at_least"),
    "size": ("is larger than gate.size.max_ratio allows", "are larger than gate.size.max_ratio allows"),
    "speed-up": ("does not keep gate.latency.min_speedup", "do not keep gate.latency.min_speedup"),
    "latency": ("takes longer than decide.max_latency", "take longer than decide.max_latency"),
    "memory": ("needs more than decide.max_memory", "need more than decide.max_memory"),
}
NO_GAIN = "no gain shown"
NAMED = 3  # so many cases of one reason are named
OPEN = {
    "accuracy": "undecided on accuracy",
    "size": "size not known",
    "speed-up": "undecided on gate.latency.min_speedup",
    "latency": "undecided on decide.max_latency",
    "memory": "memory not known",
}


def name_broken(check: LimitCheck) -> str:
    """The key in ``BROKEN`` of a limit that is broken."""
    return "floor" if isinstance(check.bound, AccuracyFloor) else check.limit


def count_reason(reason: str, cases: Sequence[str]) -> str:
    """``11 slower than fp32``, ``1 tied, needs training (QAT int8 on x86 (PyTorch))``; few cases are named."""
    single = {several: singular for singular, several in BROKEN.values()}
    said = f"{len(cases)} {single.get(reason, reason) if len(cases) == 1 else reason}"
    return f"{said} ({', '.join(_name(case) for case in cases)})" if len(cases) <= NAMED else said


def _name(case: str) -> str:
    """``net/static/onednn/t1/b1`` as ``static int8 on oneDNN (PyTorch)``."""
    key = read_case_id(case)
    return case if key is None else name_variant(key.mode, key.recipe, key.backend)


def list_reasons(
    choice: Choice, records: Sequence[Record], judged: Judged, contest: Contest, rival: Record | None = None
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each reason with the case ids that it holds for, the most frequent first; all int8 cases but the pick, and the
    ``rival`` that the answer names beside it."""
    by_reason: dict[str, list[str]] = {}
    named = [rival, choice.pick if choice.verdict in ("ship", "undecided") else None]
    for record in records:
        if record.case.mode != "fp32" and not any(record is each for each in named):
            by_reason.setdefault(_find_reason(record, choice, judged, contest), []).append(record.case.id)
    ranked = sorted(by_reason.items(), key=lambda entry: -len(entry[1]))
    return tuple((reason, tuple(cases)) for reason, cases in ranked)


def name_no_gain(objective: ObjectiveName) -> str:
    """That a case is not shown to be better than fp32, in terms of what is minimized."""
    return NO_GAIN if objective == "latency" else f"not shown {WORDS[objective][0]}"


def _find_reason(record: Record, choice: Choice, judged: Judged, contest: Contest) -> str:
    if record.status != "ok":
        return record.status
    if record not in choice.measured:
        kind = record.host.kind if record.host is not None and is_unmeasured(record) else contest.spec.minimize
        return f"{kind}, not measured" if is_unmeasured(record) else f"{kind} not measured"
    checks = judged.checks_of(record)
    if (broken := next((check for check in checks if check.outcome == "FAIL"), None)) is not None:
        in_effect = int8_share.is_fp32_in_effect(record)
        return int8_share.FP32_IN_EFFECT if in_effect else BROKEN[name_broken(broken)][1]
    if choice.fp32 is not None and record not in choice.better:
        is_worse = contest.objective.compare(record, choice.fp32).low > 0
        return f"{contest.objective.worse} than fp32" if is_worse else name_no_gain(contest.objective.name)
    if record not in choice.good:
        return next(OPEN[check.limit] for check in checks if check.outcome != "PASS")
    ranking = choice.ranking
    if ranking is None or record not in ranking.tied:
        return f"{contest.objective.worse} than the pick"
    step = next((step for step in ranking.steps if record in step.dropped), None)
    if step is None:
        return "tied, no better" if record in ranking.equals else f"{contest.objective.worse} by its estimate"
    return {
        "accuracy": "tied, less accurate",
        "no_training": "tied, needs training",
        "no_calibration": "tied, needs calibration",
        "size": "tied, larger",
        "cold_start": "tied, slower to start",
    }[step.name]


# --- what ties with the pick, and what told it from them -----------------------------------------------------------


def describe_tie(choice: Choice, contest: Contest) -> str | None:
    """``Tied with it in latency, as the difference may be 3 % or less: qat · onnxruntime (0.3 % slower [-1.5, +2.1])``;
    None where nothing ties with the pick. What ties does so with the best by its estimate, from which it is told apart
    where that is not the pick."""
    ranking = choice.ranking
    if ranking is None or choice.pick not in ranking.tied or len(ranking.tied) < 2:
        return None
    leader = ranking.order[0]
    tied = [record for record in ranking.tied if record is not leader]
    clauses = [f"{variant(record)} ({describe_distance(record, leader, contest)})" for record in tied]
    best = "it" if leader is choice.pick else f"the best by its estimate, {variant(leader)},"
    reach = f"as the difference may be {contest.spec.tie * 100:g} % or less"
    return f"Tied with {best} in {contest.objective.title}, {reach}: {', '.join(clauses)}."


def describe_distance(record: Record, pick: Record, contest: Contest) -> str:
    """``0.3 % slower [-1.5, +2.1]``."""
    comparison = contest.objective.compare(record, pick)
    ratio = comparison.ratio()
    word = contest.objective.worse if ratio.value >= 1 else contest.objective.better
    if comparison.evidence == "recorded" and contest.spec.minimize in ("size", "memory"):
        if f"{abs(ratio.value - 1) * 100:.1f}" == "0.0":
            return f"the same {contest.spec.minimize}" if ratio.value == 1 else f"less than 0.1 % {word}"
        return f"{abs(ratio.value - 1) * 100:.1f} % {word}"
    assert ratio.low is not None
    assert ratio.high is not None
    flip = ratio.value < 1  # the limits of what the word says
    ends = (1 - ratio.high, 1 - ratio.low) if flip else (ratio.low - 1, ratio.high - 1)
    distance = Interval(value=abs(ratio.value - 1), low=ends[0], high=ends[1])
    number, limits = formatting.number(distance, scale=100), formatting.limits(distance, scale=100, signed=True)
    return f"{number} % {word} {limits}".rstrip()


def describe_step(choice: Choice, contest: Contest) -> str | None:
    """What told the pick from those that tie with it; None where nothing does."""
    ranking = choice.ranking
    if ranking is None or len(ranking.tied) < 2:
        return None
    deciding = "; then ".join(step.text for step in ranking.steps)
    if len(ranking.equals) > 1:
        names = ", ".join(variant(record) for record in ranking.equals if record is not ranking.pick)
        equal = f"nothing that decide.prefer names tells it from {names}, so that its estimate decides"
        return f"{deciding}; {equal}" if deciding else equal
    if not deciding:
        return (
            f"its {contest.spec.minimize.replace('_', ' ')}: the estimates of the others are worse by more than the tie"
        )
    if ranking.steps[0].name != "accuracy" and "accuracy" in contest.spec.prefer:
        difference = contest.differences.compare(ranking.pick, ranking.steps[0].dropped[0])
        if difference is not None:
            both = f"{variant(ranking.pick)} against {variant(ranking.steps[0].dropped[0])}"
            deciding += f" (in accuracy they tie: {both} {notes.describe_accuracy(difference, contest)})"
    return deciding
