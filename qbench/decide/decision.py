"""One decision per setting: what to ship, how sure that is, and why each other case is not it; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qbench import formatting
from qbench.decide import cases, notes, reasons, sensitivity
from qbench.decide.accuracy_difference import AccuracyDifferences
from qbench.decide.cases import Setting, variant
from qbench.decide.choose import Choice, Verdict, choose
from qbench.decide.judged import Judged
from qbench.decide.objective import Scale
from qbench.decide.paired_times import Comparison, paired_times
from qbench.decide.probability import ENOUGH, Probability, estimate_probability
from qbench.decide.qualify import LimitCheck
from qbench.decide.rank import Bench, rank
from qbench.record.schema import Record
from qbench.stats.interval_type import Interval
from qbench.suite.settings import Objective

__all__ = ["Decision", "Verdict", "decide", "decide_setting"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do in one setting.

    ``pick`` is the int8 variant meant (also where fp32 stays), ``headline`` one sentence. ``fp32`` is what the pick was
    held against, and ``over_fp32`` how it compares. ``tied``: case ids that tie with the best in what is minimized,
    ``deciding_step`` what told the pick from them. ``probability``: that the pick is the best, null where none is
    shipped. ``would_change``: what else would be shipped if. ``not_it``: a reason, and the case ids that it holds for.
    ``checks``: the limits held against each int8 case, by id. ``notes``: what a decider should know besides.
    """

    setting: Setting
    verdict: Verdict
    headline: str
    objective: Objective = "latency"
    pick: Record | None = None
    runner_up: Record | None = None
    fp32: Record | None = None
    over_fp32: Comparison | None = None
    tied: tuple[str, ...] = ()
    tie: str | None = None
    deciding_step: str | None = None
    probability: float | None = None
    behind: str | None = None
    would_change: tuple[str, ...] = ()
    not_it: tuple[tuple[str, tuple[str, ...]], ...] = ()
    checks: Mapping[str, tuple[LimitCheck, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def decide(judged: Judged) -> tuple[Decision, ...]:
    """One decision for each setting of a run, in the order of the records."""
    return tuple(decide_setting(judged, setting) for setting in cases.settings(judged.records))


def decide_setting(judged: Judged, setting: Setting) -> Decision:
    """The decision of one setting."""
    records = cases.of_setting(setting, judged.records)
    bench = make_bench(judged, records)
    choice = choose(records, judged.checks, bench)
    chance = None if choice.ranking is None else estimate_probability(choice, judged, bench)
    known = {record.case.id for record in records}
    over = None if choice.pick is None or choice.fp32 is None else bench.scale.compare(choice.pick, choice.fp32)
    runner_up = find_runner_up(choice, chance, bench)
    unsure = chance is not None and chance.pick < ENOUGH and runner_up is not None
    return Decision(
        setting=setting,
        verdict="either" if unsure else choice.verdict,
        headline=_head(choice, records, judged, bench, runner_up if unsure else None),
        objective=bench.spec.minimize,
        pick=choice.pick,
        runner_up=runner_up,
        fp32=choice.fp32,
        over_fp32=over,
        tied=() if choice.ranking is None else tuple(record.case.id for record in choice.ranking.tied),
        tie=describe_tie(choice, bench),
        deciding_step=describe_step(choice, bench),
        probability=None if chance is None else chance.pick,
        behind=None if runner_up is None else _describe_behind(choice, runner_up, bench),
        would_change=sensitivity.list_changes(choice, records, judged, bench),
        not_it=reasons.list_reasons(choice, records, judged, bench),
        checks={case: checks for case, checks in judged.checks.items() if case in known},
        notes=notes.list_notes(choice, records, judged, bench),
    )


def make_bench(judged: Judged, records: Sequence[Record]) -> Bench:
    """What the variants of a setting are held against."""
    times = paired_times(records, judged.samples)
    return Bench(
        scale=Scale(objective=judged.decide.minimize, times=times),
        differences=AccuracyDifferences(judged=judged),
        metric=judged.metric,
        margin=judged.margin or 0.0,
        spec=judged.decide,
    )


def find_runner_up(choice: Choice, chance: Probability | None, bench: Bench) -> Record | None:
    """What the rule would ship without the pick; where the pick is unsure, what is most often the best instead."""
    if chance is not None and chance.pick < ENOUGH and chance.rival is not None:
        return chance.rival
    others = [record for record in choice.good if record in choice.better and record is not choice.pick]
    return rank(others, bench).pick if choice.ranking is not None and others else None


# --- words -------------------------------------------------------------------------------------------------------


def _head(choice: Choice, records: Sequence[Record], judged: Judged, bench: Bench, rival: Record | None) -> str:
    pick = choice.pick
    if choice.verdict == "no answer":
        return _explain_nothing(records, bench)
    if choice.verdict == "none qualifies" or pick is None:
        return _explain_none(choice, judged)
    if choice.verdict == "keep fp32":
        return _explain_fp32(choice, pick, bench)
    if choice.verdict == "undecided":
        what = "the fastest candidate" if bench.spec.minimize == "latency" else "the candidate that leads"
        return f"Undecided on {variant(pick)}, {what}."
    if rival is not None:
        decider = notes.explain_decider(choice, rival, judged, bench)
        return f"Either {variant(pick)} or {variant(rival)}: {decider}."
    return f"Ship {variant(pick)}."


def _explain_nothing(records: Sequence[Record], bench: Bench) -> str:
    if any(cases.is_int8(record) for record in records):
        return f"No answer: {bench.spec.minimize} was measured of no int8 case."
    counts = {status: sum(record.status == status for record in records) for status in ("failed", "skipped")}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return f"No answer: no int8 case was measured ({said})." if said else "No answer: no int8 case was measured."


def _explain_none(choice: Choice, judged: Judged) -> str:
    """Counts what rules the candidates out, by the first limit that each one breaks."""
    broken: dict[str, list[Record]] = {}
    for record in choice.measured:
        limit = next(check.limit for check in judged.checks_of(record) if check.outcome == "FAIL")
        broken.setdefault(limit, []).append(record)
    if set(broken) == {"int8"}:
        return "None qualifies: no candidate runs in int8."
    parts = []
    for limit, records in broken.items():
        single, several = reasons.BROKEN[limit]
        margin = f" of {_margin(judged)}" if limit == "accuracy" else ""
        who = variant(records[0]) if len(choice.measured) == 1 else f"{len(records)} of {len(choice.measured)}"
        parts.append(f"{who} {single if len(records) == 1 else several}{margin}")
    return f"None qualifies: {', '.join(parts)}."


def _margin(judged: Judged) -> str:
    if judged.metric is None or judged.margin is None:
        return formatting.DASH
    return f"{judged.margin:g} {judged.metric.unit}".strip()


def _explain_fp32(choice: Choice, pick: Record, bench: Bench) -> str:
    scale, fp32 = bench.scale, choice.fp32
    if fp32 is None:
        return "Keep fp32: no int8 variant is shown to be better."
    comparison = scale.compare(pick, fp32)
    holds = "that holds its accuracy" if pick in choice.good else "that may hold its accuracy"
    best = {"latency": "the fastest int8"}.get(scale.objective, "the best int8")
    unless = " unless size decides" if scale.objective == "latency" else ""
    kept = f"Keep fp32 on {fp32.case.backend} ({scale.show(fp32)})"
    if comparison is not None and comparison.low > 0:
        value = scale.show(pick).removesuffix(" a call")
        verb = "takes" if scale.objective in ("latency", "cold_start") else "has"
        return f"{kept}{unless}: {best} {holds}, {variant(pick)}, {verb} {value}."
    gain = "" if comparison is None else f", {formatting.with_limits(as_ratio(comparison))} times as fast"
    if scale.objective != "latency":
        gain = f", {scale.show(pick)}"
    return f"{kept}: no int8 variant is shown to be {scale.better}; {best} {holds} is {variant(pick)}{gain}."


def as_ratio(comparison: Comparison) -> Interval:
    """How many times as fast: the other's time over the case's."""
    ratio = comparison.ratio()
    assert ratio.low is not None
    assert ratio.high is not None
    return Interval(value=1 / ratio.value, low=1 / ratio.high, high=1 / ratio.low)


def describe_tie(choice: Choice, bench: Bench) -> str | None:
    """``Tied with qat · onnxruntime (0.3 % slower [-1.5, +2.1])``; None where nothing ties with the pick."""
    if choice.ranking is None or choice.pick is None or len(choice.ranking.tied) < 2:
        return None
    others = [record for record in choice.ranking.tied if record is not choice.pick]
    parts = [f"{variant(record)} ({_describe_distance(record, choice.pick, bench)})" for record in others]
    share = f"{bench.spec.tie * 100:g} %"
    if choice.pick not in choice.ranking.tied:
        return None
    return f"Tied in {bench.spec.minimize}: {', '.join(parts)}; none is shown to be more than {share} off."


def _describe_distance(record: Record, pick: Record, bench: Bench) -> str:
    """``0.3 % slower [-1.5, +2.1]``."""
    comparison = bench.scale.compare(record, pick)
    if comparison is None:
        return "not compared"
    ratio = comparison.ratio()
    word = bench.scale.worse if ratio.value >= 1 else bench.scale.better
    if comparison.evidence == "recorded" and bench.spec.minimize in ("size", "memory"):
        return f"{abs(ratio.value - 1) * 100:.1f} % {word}"
    assert ratio.low is not None
    assert ratio.high is not None
    flip = ratio.value < 1  # the limits of what the word says
    ends = (1 - ratio.high, 1 - ratio.low) if flip else (ratio.low - 1, ratio.high - 1)
    shown = Interval(value=abs(ratio.value - 1), low=ends[0], high=ends[1])
    number, limits = formatting.number(shown, scale=100), formatting.limits(shown, scale=100, signed=True)
    return f"{number} % {word} {limits}".rstrip()


def describe_step(choice: Choice, bench: Bench) -> str | None:
    """What told the pick from those that tie with it; None where nothing does."""
    ranking = choice.ranking
    if ranking is None or len(ranking.tied) < 2:
        return None
    told = "; then ".join(step.text for step in ranking.steps)
    if len(ranking.equals) > 1:
        names = ", ".join(variant(record) for record in ranking.equals if record is not ranking.pick)
        equal = f"nothing that decide.prefer names tells it from {names}, so that its estimate decides"
        return f"{told}; {equal}" if told else equal
    if not told:
        return f"{bench.spec.minimize}: the others' estimates are off by more than the tie"
    if ranking.steps[0].name != "accuracy" and "accuracy" in bench.spec.prefer:
        difference = bench.differences.compare(ranking.pick, ranking.steps[0].dropped[0])
        if difference is not None:
            told += f" (in accuracy they tie: {notes.describe_accuracy(difference, bench)})"
    return told


def _describe_behind(choice: Choice, runner_up: Record, bench: Bench) -> str:
    assert choice.pick is not None
    return _describe_distance(runner_up, choice.pick, bench)
