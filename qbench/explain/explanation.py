"""From trials to an explanation: which causes are confirmed, and the share of the gap that each closes; pure.

A cause is confirmed where the case is shown to take more time, or to have more error, with it: one side, at ``LEVEL``
shared over everything that was tried (Holm, Scandinavian Journal of Statistics 6 (1979), 65-70). The limits of a gain
in time, which hold for another race, too, must be above 1; a share of the error must be more than another draw of the
calibration examples would take away.

Of time, the cause that gains most is taken away, and what else may be at work is tried on the case without it, and so
on while something gains (``Round``): a cause that a larger one hides shows then, one that was only its consequence is
gone. Each later round has half of the level of the one before it, so that all of them together err in twice ``LEVEL``
at most. Of the error, all is tried once, and the confirmed causes are taken away one after the other (``steps``).
Either way each cause gets the share of the gap that it closes beyond those before it, so that the shares and what stays
unexplained are the whole gap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from qbench.explain.causes.base import Counterfactual
from qbench.explain.change import Change
from qbench.explain.error_trials import LEAST_SHARE, Evaluated
from qbench.explain.time_trials import Raced
from qbench.explain.trial import SavedTime, Trial, Tried
from qbench.measure.paired_difference import SHOWN_ERROR
from qbench.stats.multiple_testing import adjust_by_holm

LEVEL = SHOWN_ERROR
WITHOUT = "the case without these causes; nothing faster is known"
LEAST_STEP = 0.01  # of the case's time: what a cause must gain beyond those before it
HIDING = 0.7  # of the case's time: what it must take without its cause for others to be looked for anew
MOST_CAUSES, MOST_STEPS = 4, 6  # that are taken away together, of time and of the error


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a case could be: the share of what it takes that is ``left`` then, and by what that is known."""

    left: float
    name: str


NO_ERROR = Goal(left=0.0, name="the outputs of fp32")


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """A cause with the best change that takes it away; ``saved``: the share of what the case takes that is gone beyond
    those before it, and which ``share`` of the gap that is (None: no gap is known)."""

    trial: Trial
    saved: float
    share: float | None


@dataclass(frozen=True, kw_only=True)
class Round:
    """One race, and the cause that was taken away by it (None: nothing gained)."""

    tried: Raced
    chosen: Trial | None


@dataclass(frozen=True, kw_only=True)
class LayerLoss:
    """A layer in float: its trial alone, and the share of the error that is gone ``together`` with the layers before it
    (None: not tried)."""

    trial: Trial
    together: float | None


AllTried = TypeVar("AllTried", bound=Tried)


@dataclass(frozen=True, kw_only=True)
class Explanation(Generic[AllTried]):
    """``tried``: the case, and what was tried on it. ``goal`` says what the gap is measured to. ``together``: without
    all confirmed causes, None where there are none. ``unexplained``: the share of the gap that no confirmed cause
    closes, None where nothing better is known. ``alone`` are all that gain alone, the largest gain first; ``hidden``
    gain alone, but nothing beyond those that are ``confirmed``, or cannot be had together with them; ``unconfirmed``
    were tried without a shown gain, ``untried`` could not be, with the reason. ``layers``: those returned to float, the
    one that takes most error away first."""

    tried: AllTried
    goal: Goal
    confirmed: tuple[Confirmed, ...]
    together: Trial | None
    unexplained: float | None
    alone: tuple[Trial, ...]
    hidden: tuple[Trial, ...]
    unconfirmed: tuple[Trial, ...]
    untried: tuple[Trial, ...]
    layers: tuple[LayerLoss, ...] = ()

    @property
    def change(self) -> Change | None:
        """What takes all that is confirmed away; None for nothing."""
        return None if self.together is None else self.together.counterfactual.change

    @property
    def single(self) -> Change | None:
        """What of ``change`` gains with as many examples a call as the case has; None for nothing. What was confirmed
        after more examples a call may not."""
        steps = [step.change for step in chain(cause.trial for cause in self.confirmed)]
        return next((change for change in reversed(steps) if change.batch_size is None), None)

    def share_alone(self, trial: Trial) -> float | None:
        """The share of the gap that a trial of the case itself closes alone, which others may close as well; None where
        there is no gap, or the trial is one beyond other changes."""
        gap = 1 - self.goal.left
        return None if trial.beyond or gap <= 0 else trial.share / gap


def confirm(tried: Tried, level: float = LEVEL) -> tuple[Trial, ...]:
    """Of each confirmed cause, or part of one, the trial that gained most, the largest gain first; but a layer in float
    takes away whatever is wrong in it, so that a cause of the whole recipe that takes half as much goes before it, and
    qbench's own recipe takes away whatever is wrong in another: so does a cause that tells what."""
    trials = [trial for trial in tried.trials if trial.saving is not None]
    adjusted = adjust_by_holm([trial.saving.p_nothing() for trial in trials if trial.saving is not None])
    best: dict[tuple[str, str], Trial] = {}
    for trial, p_value in zip(trials, adjusted, strict=True):
        rival = best.get(trial.counterfactual.key)
        is_shown = p_value < level and trial.saving is not None and trial.saving.lasts and trial.share >= tried.least
        if is_shown and (rival is None or trial.share > rival.share):
            best[trial.counterfactual.key] = trial
    return tuple(sorted(best.values(), key=lambda trial: -_weigh(trial, best.values())))


def _weigh(trial: Trial, confirmed: Iterable[Trial]) -> float:
    """By which confirmed causes are ordered."""
    if trial.counterfactual.part:
        return trial.share
    if not trial.counterfactual.change.own_recipe:
        return 2 * trial.share
    telling = [
        other.share
        for other in confirmed
        if not other.counterfactual.part and not other.counterfactual.change.own_recipe
    ]
    return 2 * min([trial.share, *(0.999 * share for share in telling if 2 * share >= trial.share)])


def chain(trials: Iterable[Trial]) -> tuple[Counterfactual, ...]:
    """Their changes one after the other: the first, the first two, ..."""
    steps, change = [], Change()
    for trial in trials:
        change = change.then(trial.counterfactual.change)
        steps.append(replace(trial.counterfactual, change=change))
    return tuple(steps)


def choose(tried: Raced, rounds: Sequence[Round]) -> Trial | None:
    """The confirmed cause that gains most in a race after these rounds; but layers in float hide whatever makes them
    slow, so that what keeps them in int8 goes before that where it saves half as much; more examples a call, which
    single requests cannot have, come last. None where none gains ``LEAST_STEP`` of the case's time."""
    confirmed = confirm(tried, LEVEL / 2 ** len(rounds))
    if not confirmed:
        return None
    left = _list_left(each.chosen for each in rounds)[-1]
    worth = [trial for trial in confirmed if left * trial.share >= LEAST_STEP]
    worth = [trial for trial in worth if trial.counterfactual.change.batch_size is None] or worth
    largest = max(worth, key=lambda trial: trial.share, default=None)
    if largest is None or not largest.counterfactual.gives_up:
        return largest
    hidden = [trial for trial in worth if _keeps_int8(trial) and trial.share >= largest.share / 2]
    return max(hidden, key=lambda trial: trial.share, default=largest)


def goes_on(rounds: Sequence[Round]) -> bool:
    """Whether another cause may show without the ones chosen: where the last race confirmed several, or lost so much
    of the time that a smaller one may not have shown in it."""
    last = rounds[-1]
    if last.chosen is None or len(rounds) >= MOST_CAUSES:
        return False
    return len(confirm(last.tried)) > 1 or 1 - last.chosen.share < HIDING


def explain_time(rounds: Sequence[Round], goals: Sequence[Goal]) -> Explanation[Raced]:
    """What the rounds show. ``goals``: what the case could be, in order: the gap is the one to the first that the case
    does not undercut without its causes."""
    trials = [each.chosen for each in rounds if each.chosen is not None]
    left = _list_left(trials)
    goal = next((goal for goal in goals if goal.left <= left[-1]), None)
    off_core = max((each.tried.off_core for each in rounds if each.tried.off_core is not None), default=None)
    explanation = _explain(
        replace(rounds[0].tried, off_core=off_core),
        [trial for each in rounds for trial in each.tried.trials],
        trials,
        left,
        goal or Goal(left=left[-1], name=WITHOUT),
    )
    together = replace(trials[-1], counterfactual=chain(trials)[-1], saving=_join(trials)) if trials else None
    return replace(explanation, together=together, unexplained=None if goal is None else explanation.unexplained)


def explain_error(
    tried: Evaluated, confirmed: Sequence[Trial], steps: Sequence[Trial], layers: Sequence[LayerLoss] = ()
) -> Explanation[Evaluated]:
    """What the trials show. ``steps``: the confirmed ones taken away one after the other, as evaluated."""
    explanation = _explain(tried, tried.trials, confirmed, _list_left_by(steps), NO_ERROR)
    together = steps[-1] if steps else None
    unexplained = None if together is None or together.saving is None else explanation.unexplained
    return replace(explanation, together=together, unexplained=unexplained, layers=tuple(layers))


def _explain(
    tried: AllTried, trials: Sequence[Trial], confirmed: Sequence[Trial], left: Sequence[float], goal: Goal
) -> Explanation[AllTried]:
    """``trials``: all that was ever tried; ``left``: the share of what the case takes, before the first cause and after
    each. What was tried in vain stands as it came out first, what could be measured in no round once."""
    gap = 1 - goal.left
    saved = [before - after for before, after in itertools.pairwise(left)]
    alone = confirm(tried)
    keys = {trial.counterfactual.key for trial in confirmed}
    hidden = tuple(trial for trial in alone if trial.counterfactual.key not in keys)
    keys |= {trial.counterfactual.key for trial in hidden}
    measured = [trial for trial in trials if trial.saving is not None]
    texts = {trial.counterfactual.text for trial in measured}
    unconfirmed = _take_first(measured, lambda trial: (trial.counterfactual.cause, trial.counterfactual.text))
    untried = _take_first(trials, lambda trial: trial.counterfactual.text)
    return Explanation(
        tried=tried,
        goal=goal,
        confirmed=tuple(
            Confirmed(trial=trial, saved=part, share=part / gap if gap > 0 else None)
            for trial, part in zip(confirmed, saved, strict=True)
        ),
        together=None,
        unexplained=1 - sum(saved) / gap if gap > 0 else None,
        alone=alone,
        hidden=hidden,
        unconfirmed=tuple(trial for trial in unconfirmed if trial.counterfactual.key not in keys),
        untried=tuple(trial for trial in untried if trial.counterfactual.text not in texts),
    )


def _take_first(trials: Iterable[Trial], key: Callable[[Trial], Hashable]) -> list[Trial]:
    """Of each key the first."""
    first: dict[Hashable, Trial] = {}
    for trial in trials:
        first.setdefault(key(trial), trial)
    return list(first.values())


def _join(trials: Sequence[Trial]) -> SavedTime:
    """What is saved without all of them: each was measured without those before it, in a race of its own."""
    savings = [trial.saving for trial in trials if isinstance(trial.saving, SavedTime)]
    lasting = [saving.lasting for saving in savings]
    joined = replace(
        lasting[0],
        value=sum(difference.value for difference in lasting),
        error=math.sqrt(sum(difference.error**2 for difference in lasting)),
        freedom=min(difference.freedom for difference in lasting),
    )
    return SavedTime(difference=joined, lasting=joined)


def _list_left(trials: Iterable[Trial | None]) -> list[float]:
    """The share of the time that is left, before the first of these causes and after each."""
    shares = [1 - trial.share for trial in trials if trial is not None]
    return list(itertools.accumulate(shares, lambda left, share: left * share, initial=1.0))


def _list_left_by(steps: Sequence[Trial]) -> list[float]:
    """The share of the error that is left, before the first step and after each; one that could not be evaluated takes
    nothing."""
    left = [1.0]
    for step in steps:
        left.append(left[-1] if step.saving is None else 1 - step.share)
    return left


def _keeps_int8(trial: Trial) -> bool:
    """Whether a trial is about how layers are int8, which they would no longer show in float: more examples a call are
    not."""
    return not (trial.counterfactual.gives_up or trial.counterfactual.change.batch_size)


def list_layers(tried: Evaluated) -> tuple[Trial, ...]:
    """The layers that were returned to float, each alone, the one that takes most error away first."""
    layers = [trial for trial in tried.trials if trial.counterfactual.part and trial.saving is not None]
    return tuple(sorted(layers, key=lambda trial: -trial.share))


def pair_layers(layers: Sequence[Trial], steps: Sequence[Trial]) -> tuple[LayerLoss, ...]:
    """The layers with what the first of them take away one after the other, as evaluated in ``steps``."""
    shares = [None if step.saving is None else step.share for step in steps]
    return tuple(
        LayerLoss(trial=trial, together=share) for trial, share in itertools.zip_longest(layers, shares[: len(layers)])
    )


def is_all_gone(steps: Sequence[Trial]) -> bool:
    """Whether the last of several steps leaves less of the error than a cause must take away."""
    return bool(steps) and steps[-1].saving is not None and 1 - steps[-1].share < LEAST_SHARE


def drop_idle_loss(confirmed: Sequence[Trial], steps: Sequence[Trial]) -> tuple[Trial, ...]:
    """The confirmed ones without the first that takes nothing beyond those before it, when they are taken away in this
    order; all of them where each does. The first one always stays."""
    saved = [before - after for before, after in itertools.pairwise(_list_left_by(steps))]
    idle = next((number for number, share in enumerate(saved) if number and share < LEAST_SHARE), None)
    return tuple(trial for number, trial in enumerate(confirmed) if number != idle)
