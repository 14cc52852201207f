"""From trials to an explanation: which causes are confirmed, and the share of the gap that each closes; pure.

A cause is confirmed where the case is shown to be slower than without it: Student's t over generations of processes,
one side, at ``LEVEL`` shared over everything that was tried (Holm, Scandinavian Journal of Statistics 6 (1979), 65-70).
The confirmed ones are then taken away one after the other, the largest first, in one more race: each gets the share
that it closes beyond those before it, so that the shares and what stays unexplained are the whole gap. One that gains
nothing beyond those before it is left out, and the others are measured again without it. Where those confirmed gain so
much that a smaller cause may have been hidden by them, what else may be at work is tried once more without them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from qbench.explain.causes.base import Counterfactual
from qbench.explain.change import Change
from qbench.explain.trials import Trial, Tried
from qbench.measure.paired_difference import SHOWN_ERROR
from qbench.stats.interval_type import Interval
from qbench.stats.multiple_testing import adjust_by_holm

LEVEL = SHOWN_ERROR
WITHOUT = "the case without these causes; nothing faster is known"
HIDING = 0.7  # of the case's time: what it must take without its causes for others to be looked for anew
LEAST_STEP = 0.01  # of the time before it: what a cause must gain beyond those before it


@dataclass(frozen=True, kw_only=True)
class Confirmed:
    """A cause with the best change that takes it away, the ``seconds`` for one example that this saves after those
    before it, and which ``share`` of the gap that is (None: no gap is known)."""

    trial: Trial
    seconds: float
    share: float | None


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """``case_seconds``, ``fp32_seconds`` and ``best_seconds`` are those of one example; ``best`` says what the gap is
    measured to. ``together``: how many times as fast without all confirmed causes, None where fewer than two are.
    ``unexplained``: the share of the gap that no confirmed cause closes, None where nothing faster is known. ``hidden``
    gain alone, but nothing beyond those that are ``confirmed``, or cannot be had together with them; ``unconfirmed``
    were tried without a shown gain, ``untried`` could not be, with the reason. ``change`` takes all that is confirmed
    away. ``over_fp32``: how many times as long as fp32 the case takes."""

    case_seconds: float
    fp32_seconds: float | None
    best_seconds: float
    best: str
    confirmed: tuple[Confirmed, ...]
    together: Interval | None
    unexplained: float | None
    hidden: tuple[Trial, ...]
    unconfirmed: tuple[Trial, ...]
    untried: tuple[Trial, ...]
    change: Change | None
    over_fp32: Interval | None = None


def confirm(tried: Tried) -> tuple[Trial, ...]:
    """Of each confirmed cause the trial that gained most, the largest gain first."""
    trials = [trial for trial in tried.trials if trial.difference is not None]
    adjusted = adjust_by_holm([_p_value(trial) for trial in trials])
    best: dict[tuple[str, str], Trial] = {}
    for trial, p_value in zip(trials, adjusted, strict=True):
        known = best.get(trial.counterfactual.key)
        if p_value < LEVEL and (known is None or _log_ratio(trial) < _log_ratio(known)):
            best[trial.counterfactual.key] = trial
    return tuple(sorted(best.values(), key=_log_ratio))


def chain(counterfactuals: Iterable[Counterfactual]) -> tuple[Counterfactual, ...]:
    """Their changes one after the other: the first, the first two, ..."""
    steps, change = [], Change()
    for counterfactual in counterfactuals:
        change = change.then(counterfactual.change)
        steps.append(replace(counterfactual, change=change))
    return tuple(steps)


def drop_idle(confirmed: Sequence[Trial], steps: Tried) -> tuple[Trial, ...]:
    """The confirmed ones without the first that gains nothing beyond those before it, when they are taken away in this
    order; all of them where each gains. The first one always stays. One at a time, since what follows an idle one was
    measured with it."""
    seconds = _list_seconds(confirmed, steps, steps.original_seconds)
    gains = [1 - after / before for before, after in itertools.pairwise([steps.original_seconds, *seconds])]
    idle = next((number for number, gain in enumerate(gains) if number and gain < LEAST_STEP), None)
    return tuple(trial for number, trial in enumerate(confirmed) if number != idle)


def may_hide(tried: Tried, confirmed: Sequence[Trial], steps: Tried | None) -> bool:
    """Whether the confirmed ones take so much of the time that a smaller cause may not have shown beside them."""
    start = tried.original_seconds
    return bool(confirmed) and min(_list_seconds(confirmed, steps, start)) < HIDING * start


def explain(
    tried: Tried,
    confirmed: Sequence[Trial],
    steps: Tried | None,
    bests: Sequence[tuple[float, str]],
    again: Tried | None = None,
) -> Explanation:
    """What the trials show. ``confirmed``: those that gain, in their order; ``steps``: their chain, measured (None
    where there are fewer than two). ``bests``: the seconds for one example of what the case could be, and what
    that is, in order: the gap is the one to the first that the case does not undercut without its causes.
    ``again``: what was tried without the first ones confirmed."""
    start = tried.original_seconds
    seconds = _list_seconds(confirmed, steps, start)
    reached = min([start, *seconds])
    known = next((best for best in bests if best[0] <= reached), None)
    least, name = known or (reached, WITHOUT)
    gap = start - least
    closed = [before - after for before, after in zip([start, *seconds], seconds, strict=False)]
    shares = [part / gap if gap > 0 else None for part in closed]
    keys = {trial.counterfactual.key for trial in confirmed}
    hidden = tuple(trial for trial in confirm(tried) if trial.counterfactual.key not in keys)
    keys |= {trial.counterfactual.key for trial in hidden}
    later = () if again is None else again.trials
    first = {trial.counterfactual.key for trial in tried.trials if trial.difference is not None}
    last = None if steps is None else steps.trials[-1]
    return Explanation(
        case_seconds=start,
        fp32_seconds=tried.fp32_seconds,
        best_seconds=least,
        best=name,
        confirmed=tuple(
            Confirmed(trial=trial, seconds=part, share=share)
            for trial, part, share in zip(confirmed, closed, shares, strict=True)
        ),
        together=None if last is None else last.gain,
        unexplained=1 - sum(part / gap for part in closed) if gap > 0 and known is not None else None,
        hidden=hidden,
        unconfirmed=tuple(
            trial for trial in tried.trials if trial.difference is not None and trial.counterfactual.key not in keys
        ),
        untried=tuple(
            trial
            for trial in (*tried.trials, *later)
            if trial.difference is None and trial.counterfactual.key not in (keys | first if trial.beyond else set())
        ),
        change=chain(trial.counterfactual for trial in confirmed)[-1].change if confirmed else None,
        over_fp32=tried.over_fp32,
    )


def _list_seconds(confirmed: Sequence[Trial], steps: Tried | None, start: float) -> list[float]:
    """The seconds after each step; a step that could not be measured leaves them as they were."""
    trials = list(confirmed) if steps is None else list(steps.trials)
    seconds, now = [], start
    for trial in trials[: len(confirmed)]:
        now = now if trial.difference is None else start * math.exp(_log_ratio(trial))
        seconds.append(now)
    return seconds


def _p_value(trial: Trial) -> float:
    assert trial.difference is not None
    return trial.difference.p_not_below(0.0)


def _log_ratio(trial: Trial) -> float:
    assert trial.difference is not None
    return trial.difference.value
