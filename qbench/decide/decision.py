"""One decision per setting: what to ship, how sure that is, and why each other case is not it; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qbench.decide import cases, headline, names, next_step, not_timed, notes, reasons, sensitivity
from qbench.decide.accuracy_difference import AccuracyDifferences
from qbench.decide.cases import Setting, setting_of
from qbench.decide.choose import Choice, Verdict, choose
from qbench.decide.decision_type import Decision
from qbench.decide.judged import Judged
from qbench.decide.objective import Objective
from qbench.decide.paired_times import Comparison, paired_times
from qbench.decide.probability import ENOUGH, Probability, estimate_probability
from qbench.decide.rank import rank
from qbench.decide.sentence import write_sentence
from qbench.decide.sureness import Sureness, estimate_keep, limit_sureness
from qbench.decide.tie import Contest
from qbench.record.schema import NATIVE, CaseKey, Record

__all__ = ["Decision", "Verdict", "decide", "decide_setting"]


def decide(judged: Judged) -> tuple[Decision, ...]:
    """One decision for each setting that a run was asked for, in the order of the records: nothing is decided of a host
    whose cases are there only for those of others to be held against."""
    settings = cases.settings(judged.records, judged.missing)
    asked = [setting for setting in settings if not _is_for_reference(setting, judged)]
    return tuple(decide_setting(judged, setting) for setting in asked or settings)


def _is_for_reference(setting: Setting, judged: Judged) -> bool:
    """Whether all cases of a setting were added by the plan, beside another host's of the same setting."""
    records = cases.of_setting(setting, judged.records)
    if not records or not all(record.reference for record in records):
        return False
    asked = (setting_of(record.case) for record in judged.records if not record.reference)
    return any(replace(one_asked, host=setting.host) == setting for one_asked in asked)


def decide_setting(judged: Judged, setting: Setting) -> Decision:
    """The decision of one setting; undecided on a host without a time of what leads on ``native``."""
    records = cases.of_setting(setting, judged.records)
    contest = make_contest(judged, records)
    choice = choose(records, judged.checks, contest)
    chance = None if choice.ranking is None else estimate_probability(choice, judged, contest)
    ids = {record.case.id for record in records}
    over = None if choice.pick is None or choice.fp32 is None else contest.objective.compare(choice.pick, choice.fp32)
    fastest = choice.fp32 if contest.spec.minimize == "latency" else cases.fastest_fp32(records)
    runner_up = find_runner_up(choice, chance, contest)
    unsure = chance is not None and chance.pick < ENOUGH and runner_up is not None
    untimed = _find_untimed(setting, choice, records, judged)
    missing = tuple(key for key in judged.missing if cases.is_of_setting(key, setting))
    said = headline.explain(choice, records, judged, contest, runner_up if unsure else None)
    said = not_timed.explain_untimed(untimed, said) if untimed else said
    before = headline.explain_missing(missing, len(records))
    sure = None if missing or untimed else _find_sureness(choice, chance, contest)
    decision = Decision(
        setting=setting,
        verdict="undecided" if untimed else "either" if unsure else choice.verdict,
        headline=f"{before}{said[0].lower()}{said[1:]}" if before else said,
        objective=contest.spec.minimize,
        pick=choice.pick,
        runner_up=runner_up,
        fp32=choice.fp32,
        over_fp32=over,
        fastest=fastest,
        over_fastest=_compare_times(choice.pick, fastest, contest),
        tied=() if choice.ranking is None else tuple(record.case.id for record in choice.ranking.tied),
        tie=reasons.describe_tie(choice, contest),
        deciding_step=reasons.describe_step(choice, contest),
        probability=None if sure is None else sure.probability,
        capped=None if sure is None else sure.because,
        behind=None
        if runner_up is None or choice.pick is None
        else reasons.describe_distance(runner_up, choice.pick, contest),
        would_change=() if untimed else sensitivity.list_changes(choice, records, judged, contest, runner_up),
        not_it=reasons.list_reasons(choice, records, judged, contest, runner_up if unsure else None),
        checks={case: checks for case, checks in judged.checks.items() if case in ids},
        notes=(
            *not_timed.list_notes(records, untimed, contest),
            *notes.list_notes(choice, records, judged, contest),
        ),
        missing=tuple(key.id for key in missing),
    )
    step = _find_next_step(decision, choice, sure, records, judged, contest)
    told = _in_words(replace(decision, next_step=step), [*(record.case for record in records), *missing])
    return replace(told, sentence=write_sentence(told, judged))


def _find_next_step(
    decision: Decision,
    choice: Choice,
    sure: Sureness | None,
    records: Sequence[Record],
    judged: Judged,
    contest: Contest,
) -> str:
    """What would decide what is open of the answer, or that nothing is."""
    if decision.missing:
        return next_step.resume(judged)
    if decision.verdict == "undecided" and choice.verdict != "undecided":
        return f"A machine of that kind can time it: `qbench run {judged.source.suite}` there."
    rival = decision.runner_up if decision.verdict == "either" else None
    step = next_step.find_next_step(choice, rival, records, judged, contest)
    held_back = sure is not None and sure.because is not None and step == next_step.NOTHING
    return next_step.measure_again(sure, judged) if sure is not None and held_back else step


def _in_words(decision: Decision, keys: Sequence[CaseKey]) -> Decision:
    """The decision with every variant and runtime called as a reader knows it."""

    def say(text: str) -> str:
        return names.in_words(text, keys)

    return replace(
        decision,
        headline=say(decision.headline),
        tie=None if decision.tie is None else say(decision.tie),
        deciding_step=None if decision.deciding_step is None else say(decision.deciding_step),
        capped=None if decision.capped is None else say(decision.capped),
        would_change=tuple(map(say, decision.would_change)),
        notes=tuple(map(say, decision.notes)),
    )


def _find_untimed(setting: Setting, choice: Choice, records: Sequence[Record], judged: Judged) -> tuple[Record, ...]:
    """What leads on ``native`` and has no time on the setting's host."""
    native = cases.of_setting(replace(setting, host=NATIVE), judged.records)
    return not_timed.list_untimed_leaders(choice, records, native, judged, make_contest(judged, native))


def _find_sureness(choice: Choice, chance: Probability | None, contest: Contest) -> Sureness | None:
    """How often the same would be shipped, or fp32 kept, again."""
    probability = chance.pick if chance is not None else None
    if choice.verdict == "keep fp32":
        probability = estimate_keep(choice, contest)
    if probability is None:
        return None
    assert choice.pick is not None
    room = notes.find_room(choice, choice.pick, contest)[0] if contest.spec.minimize == "latency" else None
    return limit_sureness(probability, choice.pick, room, contest)


def _compare_times(pick: Record | None, fastest: Record | None, contest: Contest) -> Comparison | None:
    """ln of the pick's time over that of the fastest fp32."""
    if pick is None or fastest is None:
        return None
    return contest.objective.times.compare(pick.case.id, fastest.case.id)


def make_contest(judged: Judged, records: Sequence[Record]) -> Contest:
    """What the variants of a setting are held against."""
    times = paired_times(records, judged.samples)
    return Contest(
        objective=Objective(name=judged.decide.minimize, times=times),
        differences=AccuracyDifferences(judged=judged),
        metric=judged.metric,
        bound=judged.bound,
        spec=judged.decide,
    )


def find_runner_up(choice: Choice, chance: Probability | None, contest: Contest) -> Record | None:
    """What the rule would ship without the pick; where the pick is unsure, what is most often the best instead."""
    if chance is not None and chance.pick < ENOUGH and chance.rival is not None:
        return chance.rival
    alternatives = [record for record in choice.good if record in choice.better and record is not choice.pick]
    return rank(alternatives, contest).pick if choice.ranking is not None and alternatives else None
