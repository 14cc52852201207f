"""One decision per setting: what to ship, how sure that is, and why each other case is not it; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from qbench.decide import cases, headline, not_timed, notes, reasons, sensitivity
from qbench.decide.accuracy_difference import AccuracyDifferences
from qbench.decide.cases import Setting, setting_of
from qbench.decide.choose import Choice, Verdict, choose
from qbench.decide.judged import Judged
from qbench.decide.limits import LimitCheck
from qbench.decide.objective import Objective
from qbench.decide.paired_times import Comparison, paired_times
from qbench.decide.probability import ENOUGH, Probability, cap_by_outputs, estimate_probability
from qbench.decide.rank import rank
from qbench.decide.tie import Contest
from qbench.record.schema import NATIVE, Record
from qbench.suite.settings import ObjectiveName

__all__ = ["Decision", "Verdict", "decide", "decide_setting"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do in one setting.

    ``pick`` is the int8 variant meant (also where fp32 stays), ``headline`` one sentence. ``fp32`` is what the pick was
    held against, and ``over_fp32`` how it compares in what is minimized; ``fastest`` is the fastest fp32, and
    ``over_fastest`` how the pick's time compares with it. ``tied``: case ids that tie with the best in what is
    minimized, ``deciding_step`` what told the pick from them. ``probability``: that the pick is the best, null where
    none is shipped, and where planned cases (``missing``) have no record. ``would_change``: what else would be shipped
    if. ``not_it``: a reason, and the case ids that it holds for. ``checks``: the limits held against each int8 case, by
    id. ``notes``: what a decider should know besides.
    """

    setting: Setting
    verdict: Verdict
    headline: str
    objective: ObjectiveName = "latency"
    pick: Record | None = None
    runner_up: Record | None = None
    fp32: Record | None = None
    over_fp32: Comparison | None = None
    fastest: Record | None = None
    over_fastest: Comparison | None = None
    tied: tuple[str, ...] = ()
    tie: str | None = None
    deciding_step: str | None = None
    probability: float | None = None
    behind: str | None = None
    would_change: tuple[str, ...] = ()
    not_it: tuple[tuple[str, tuple[str, ...]], ...] = ()
    checks: Mapping[str, tuple[LimitCheck, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def status(self) -> Verdict | Literal["incomplete"]:
        """The verdict, or that it is ``incomplete``: planned cases are missing, one of which may be better than what it
        names to be shipped or kept."""
        decided = self.verdict in ("ship", "either", "keep fp32", "none qualifies")
        return "incomplete" if self.missing and decided else self.verdict


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
    sentence = headline.explain(choice, records, judged, contest, runner_up if unsure else None)
    sentence = not_timed.explain_untimed(untimed, sentence) if untimed else sentence
    return Decision(
        setting=setting,
        verdict="undecided" if untimed else "either" if unsure else choice.verdict,
        headline=f"{headline.explain_missing(missing, len(records))} {sentence}".lstrip(),
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
        probability=None if missing or untimed else _find_probability(choice.pick, chance),
        behind=None
        if runner_up is None or choice.pick is None
        else reasons.describe_distance(runner_up, choice.pick, contest),
        would_change=() if untimed else sensitivity.list_changes(choice, records, judged, contest),
        not_it=reasons.list_reasons(choice, records, judged, contest, runner_up if unsure else None),
        checks={case: checks for case, checks in judged.checks.items() if case in ids},
        notes=(
            *not_timed.list_notes(records, untimed, contest),
            *notes.list_notes(choice, records, judged, contest),
        ),
        missing=tuple(key.id for key in missing),
    )


def _find_untimed(setting: Setting, choice: Choice, records: Sequence[Record], judged: Judged) -> tuple[Record, ...]:
    """What leads on ``native`` and has no time on the setting's host."""
    if setting.host == NATIVE:
        return ()
    native = cases.of_setting(replace(setting, host=NATIVE), judged.records)
    return not_timed.list_untimed_leaders(choice, records, native, judged, make_contest(judged, native))


def _find_probability(pick: Record | None, chance: Probability | None) -> float | None:
    return None if pick is None or chance is None else cap_by_outputs(chance.pick, pick)


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
