"""From trials to an explanation: which causes are confirmed, and the share of the gap that each closes; pure.

A cause is confirmed where the case is shown to be slower than without it: Student's t over generations of processes,
one side, at ``LEVEL`` shared over everything that was tried (Holm, Scandinavian Journal of Statistics 6 (1979), 65-70),
and where the limits of its gain, which hold for another race, too, are above 1.
The one that gains most is taken away, and what else may be at work is tried on the case without it, and so on while
something gains (``Round``): a cause that a larger one hides shows then, one that was only its consequence is gone. Each
later round has half of the level of the one before it, so that all of them together err in twice ``LEVEL`` at most.
Each cause gets the share of the gap that it closes beyond those before it, so that the shares and what stays
unexplained are the whole gap.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from qbench.explain.causes.base import Counterfactual
from qbench.explain.change import Change
from qbench.explain.trials import Trial, Tried
from qbench.measure.paired_difference import LEVEL as LIMITS
from qbench.measure.paired_difference import SHOWN_ERROR, quantile_of_t
from qbench.stats.interval_type import Interval
from qbench.stats.multiple_testing import adjust_by_holm

LEVEL = SHOWN_ERROR
WITHOUT = "the case without these causes; nothing faster is known"
LEAST_STEP = 0.01  # of the case's time: what a cause must gain beyond those before it
HIDING = 0.7  # of the case's time: what it must take without its cause for others to be looked for anew
MOST_CAUSES = 4


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """A cause with the best change that takes it away, the ``seconds`` for one example that this saves after those
    before it, and which ``share`` of the gap that is (None: no gap is known)."""

    trial: Trial
    seconds: float
    share: float | None


@dataclass(frozen=True, kw_only=True)
class Round:
    """One race, and the cause that was taken away by it (None: nothing gained)."""

    tried: Tried
    chosen: Trial | None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """``case_seconds``, ``fp32_seconds`` and ``best_seconds`` are those of one example; ``best`` says what the gap is
    measured to. ``together``: how many times as fast without all confirmed causes, None where fewer than two are.
    ``unexplained``: the share of the gap that no confirmed cause closes, None where nothing faster is known. ``alone``
    are all that gain alone, the largest gain first; ``hidden`` gain alone, but nothing beyond those that are
    ``confirmed``, or cannot be had together with them; ``unconfirmed`` were tried without a shown gain, ``untried``
    could not be, with the reason. ``change`` takes all that is confirmed away. ``over_fp32``: how many times as long as
    fp32 the case takes. ``off_core``: the largest share of a race in which other processes of the machine had the
    core."""

    case_seconds: float
    fp32_seconds: float | None
    best_seconds: float
    best: str
    confirmed: tuple[Confirmed, ...]
    together: Interval | None
    unexplained: float | None
    alone: tuple[Trial, ...]
    hidden: tuple[Trial, ...]
    unconfirmed: tuple[Trial, ...]
    untried: tuple[Trial, ...]
    change: Change | None
    over_fp32: Interval | None = None
    off_core: float | None = None

    @property
    def single(self) -> Change | None:
        """What of ``change`` gains with as many examples a call as the case has; None for nothing. What was confirmed
        after more examples a call may not."""
        steps = [step.change for step in chain(cause.trial.counterfactual for cause in self.confirmed)]
        return next((change for change in reversed(steps) if change.batch_size is None), None)

    def share_alone(self, trial: Trial) -> float | None:
        """The share of the gap that a trial of the case itself closes alone, which others may close as well; None where
        there is no gap, or the trial is one beyond other changes."""
        gap = self.case_seconds - self.best_seconds
        if trial.beyond or trial.difference is None or gap <= 0:
            return None
        return self.case_seconds * _saving(trial) / gap


def confirm(tried: Tried, level: float = LEVEL) -> tuple[Trial, ...]:
    """Of each confirmed cause the trial that gained most, the largest gain first."""
    trials = [trial for trial in tried.trials if trial.difference is not None]
    adjusted = adjust_by_holm([_p_value(trial) for trial in trials])
    best: dict[tuple[str, str], Trial] = {}
    for trial, p_value in zip(trials, adjusted, strict=True):
        known = best.get(trial.counterfactual.key)
        lasts = trial.lasting is not None and trial.lasting.limits()[1] < 0.0
        if lasts and p_value < level and (known is None or _log_ratio(trial) < _log_ratio(known)):
            best[trial.counterfactual.key] = trial
    return tuple(sorted(best.values(), key=_log_ratio))


def choose(tried: Tried, rounds: Sequence[Round]) -> Trial | None:
    """The confirmed cause that gains most in a race after these rounds; but layers in float hide whatever makes them
    slow, so that what keeps them in int8 goes before that where it saves half as much; more examples a call, which
    single requests cannot have, come last. None where none gains ``LEAST_STEP`` of the case's time."""
    confirmed = confirm(tried, LEVEL / 2 ** len(rounds))
    if not confirmed:
        return None
    before = rounds[0].tried.original_seconds if rounds else tried.original_seconds
    now = before * math.exp(sum(_log_ratio(each.chosen) for each in rounds if each.chosen is not None))
    worth = [trial for trial in confirmed if now * _saving(trial) >= LEAST_STEP * before]
    worth = [trial for trial in worth if trial.counterfactual.change.batch_size is None] or worth
    largest = max(worth, key=_saving, default=None)
    if largest is None or not largest.counterfactual.gives_up:
        return largest
    hidden = [trial for trial in worth if _keeps_int8(trial) and _saving(trial) >= _saving(largest) / 2]
    return max(hidden, key=_saving, default=largest)


def goes_on(rounds: Sequence[Round]) -> bool:
    """Whether another cause may show without the ones chosen: where the last race confirmed several, or lost so much
    of the time that a smaller one may not have shown in it."""
    last = rounds[-1]
    if last.chosen is None or len(rounds) >= MOST_CAUSES:
        return False
    return len(confirm(last.tried)) > 1 or math.exp(_log_ratio(last.chosen)) < HIDING


def chain(counterfactuals: Iterable[Counterfactual]) -> tuple[Counterfactual, ...]:
    """Their changes one after the other: the first, the first two, ..."""
    steps, change = [], Change()
    for counterfactual in counterfactuals:
        change = change.then(counterfactual.change)
        steps.append(replace(counterfactual, change=change))
    return tuple(steps)


def explain(rounds: Sequence[Round], bests: Sequence[tuple[float, str]]) -> Explanation:
    """What the rounds show. ``bests``: the seconds for one example of what the case could be, and what that is, in
    order: the gap is the one to the first that the case does not undercut without its causes."""
    tried = rounds[0].tried
    confirmed = [each.chosen for each in rounds if each.chosen is not None]
    seconds = [tried.original_seconds]
    for trial in confirmed:
        seconds.append(seconds[-1] * math.exp(_log_ratio(trial)))
    known = next((best for best in bests if best[0] <= seconds[-1]), None)
    least, name = known or (seconds[-1], WITHOUT)
    gap = seconds[0] - least
    closed = [before - after for before, after in itertools.pairwise(seconds)]
    chosen = {trial.counterfactual.key for trial in confirmed}
    alone = confirm(tried)
    hidden = tuple(trial for trial in alone if trial.counterfactual.key not in chosen)
    return Explanation(
        case_seconds=seconds[0],
        fp32_seconds=tried.fp32_seconds,
        best_seconds=least,
        best=name,
        confirmed=tuple(
            Confirmed(trial=trial, seconds=part, share=part / gap if gap > 0 else None)
            for trial, part in zip(confirmed, closed, strict=True)
        ),
        together=_join(confirmed) if len(confirmed) > 1 else None,
        unexplained=1 - sum(closed) / gap if gap > 0 and known is not None else None,
        alone=alone,
        hidden=hidden,
        unconfirmed=_list_unconfirmed(rounds, chosen | {trial.counterfactual.key for trial in hidden}),
        untried=_list_untried(rounds),
        change=chain(trial.counterfactual for trial in confirmed)[-1].change if confirmed else None,
        over_fp32=tried.over_fp32,
        off_core=max((each.tried.off_core for each in rounds if each.tried.off_core is not None), default=None),
    )


def _list_unconfirmed(rounds: Sequence[Round], known: set[tuple[str, str]]) -> tuple[Trial, ...]:
    """What was measured in vain, each change as it came out first."""
    trials: dict[tuple[str, str], Trial] = {}
    for trial in (trial for each in rounds for trial in each.tried.trials):
        if trial.difference is not None and trial.counterfactual.key not in known:
            trials.setdefault((trial.counterfactual.cause, trial.counterfactual.text), trial)
    return tuple(trials.values())


def _list_untried(rounds: Sequence[Round]) -> tuple[Trial, ...]:
    """What could be measured in no round."""
    trials = [trial for each in rounds for trial in each.tried.trials]
    measured = {trial.counterfactual.text for trial in trials if trial.difference is not None}
    untried = {trial.counterfactual.text: trial for trial in reversed(trials) if trial.difference is None}
    return tuple(trial for text, trial in reversed(untried.items()) if text not in measured)


def _join(trials: Sequence[Trial]) -> Interval:
    """How many times as fast without all of them: each was measured without those before it, in a race of its own."""
    differences = [trial.lasting for trial in trials if trial.lasting is not None]
    value = sum(difference.value for difference in differences)
    error = math.sqrt(sum(difference.error**2 for difference in differences))
    half = quantile_of_t((1 + LIMITS) / 2, min(difference.freedom for difference in differences)) * error
    return Interval(value=math.exp(-value), low=math.exp(-value - half), high=math.exp(-value + half))


def _p_value(trial: Trial) -> float:
    assert trial.difference is not None
    return trial.difference.p_not_below(0.0)


def _keeps_int8(trial: Trial) -> bool:
    """Whether a trial is about how layers are int8, which they would no longer show in float: more examples a call are
    not."""
    return not (trial.counterfactual.gives_up or trial.counterfactual.change.batch_size)


def _saving(trial: Trial) -> float:
    """The share of the time that a trial saves."""
    return 1 - math.exp(_log_ratio(trial))


def _log_ratio(trial: Trial) -> float:
    assert trial.difference is not None
    return trial.difference.value
