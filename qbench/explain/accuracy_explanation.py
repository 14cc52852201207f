"""From evaluated changes to an explanation of what int8 costs in accuracy; pure.

A cause is confirmed where taking it away is shown to take error away: one side, at ``LEVEL`` shared over everything
that was tried (Holm), and more of it than another draw of the calibration examples would. The confirmed ones are then
taken away one after the other, the largest first, and evaluated again: each has the share that it takes beyond those
before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from qbench.explain.accuracy_trials import AccuracyTrial, AccuracyTried
from qbench.explain.change import Change
from qbench.explain.explanation import LEVEL
from qbench.stats.multiple_testing import adjust_by_holm

LEAST_SHARE = 0.02  # of the error: what a cause must take away beyond those before it
# As many times what other draws of the calibration examples change, typically, must a cause take away. The limits of a
# share are those over evaluated examples, for this one draw.
OVER_DRAWS = 3.0
MOST_STEPS = 6


@dataclass(frozen=True, kw_only=True)
class ConfirmedLoss:
    """A cause with its trial alone, and the ``share`` of the error that it takes away beyond those before it."""

    trial: AccuracyTrial
    share: float


@dataclass(frozen=True, kw_only=True)
class LayerLoss:
    """A layer in float: its trial alone, and the share of the error that is gone ``together`` with the layers before it
    (None: not tried)."""

    trial: AccuracyTrial
    together: float | None


@dataclass(frozen=True, kw_only=True)
class AccuracyExplanation:
    """``layers``: those returned to float, the one that takes most away first. ``together``: the trial without all
    confirmed causes, None where there are none. ``left``: the share of the error that stays then. ``hidden`` take error
    away alone, but nothing beyond those confirmed; ``unconfirmed`` were tried without a shown effect, ``untried`` could
    not be. ``change`` takes all that is confirmed away."""

    tried: AccuracyTried
    confirmed: tuple[ConfirmedLoss, ...]
    together: AccuracyTrial | None
    left: float | None
    hidden: tuple[AccuracyTrial, ...]
    unconfirmed: tuple[AccuracyTrial, ...]
    untried: tuple[AccuracyTrial, ...]
    change: Change | None
    layers: tuple[LayerLoss, ...] = ()


def list_layers(tried: AccuracyTried) -> tuple[AccuracyTrial, ...]:
    """The layers that were returned to float, each alone, the one that takes most error away first."""
    layers = [trial for trial in tried.trials if trial.counterfactual.part and trial.share is not None]
    return tuple(sorted(layers, key=lambda trial: -_share(trial)))


def pair_layers(layers: Sequence[AccuracyTrial], steps: Sequence[AccuracyTrial]) -> tuple[LayerLoss, ...]:
    """The layers with what the first of them take away one after the other, as evaluated in ``steps``."""
    shares = [None if step.share is None else step.share.value for step in steps]
    return tuple(
        LayerLoss(trial=trial, together=share) for trial, share in itertools.zip_longest(layers, shares[: len(layers)])
    )


def find_least_share(tried: AccuracyTried) -> float:
    """The share of the error that a cause must take away at least."""
    return max(LEAST_SHARE, OVER_DRAWS * tried.draw_share)


def is_all_gone(steps: Sequence[AccuracyTrial]) -> bool:
    """Whether the last of several steps leaves less of the error than a cause must take away."""
    last = steps[-1].share if steps else None
    return last is not None and 1 - last.value < LEAST_SHARE


def confirm_losses(tried: AccuracyTried) -> tuple[AccuracyTrial, ...]:
    """Of each confirmed cause, or part of one, the trial that took most error away, the largest share first; but a
    layer in float takes away whatever is wrong in it, so that a cause of the whole recipe that takes half as much goes
    before it."""
    known = [(trial, trial.share) for trial in tried.trials if trial.share is not None]
    adjusted = adjust_by_holm([share.p_not_positive() for _, share in known])
    least = find_least_share(tried)
    best: dict[tuple[str, str], AccuracyTrial] = {}
    for (trial, share), p_value in zip(known, adjusted, strict=True):
        other = best.get(trial.counterfactual.key)
        if p_value < LEVEL and share.value >= least and (other is None or share.value > _share(other)):
            best[trial.counterfactual.key] = trial
    return tuple(sorted(best.values(), key=lambda trial: -_rank(trial)))


def drop_idle_loss(confirmed: Sequence[AccuracyTrial], steps: Sequence[AccuracyTrial]) -> tuple[AccuracyTrial, ...]:
    """The confirmed ones without the first that takes nothing beyond those before it, when they are taken away in this
    order; all of them where each does. The first one always stays."""
    shares = _list_shares(steps)
    idle = next((number for number, share in enumerate(shares) if number and share < LEAST_SHARE), None)
    return tuple(trial for number, trial in enumerate(confirmed) if number != idle)


def explain_losses(
    tried: AccuracyTried, confirmed: Sequence[AccuracyTrial], steps: Sequence[AccuracyTrial]
) -> AccuracyExplanation:
    """What the trials show. ``steps``: the confirmed ones taken away one after the other, as evaluated."""
    keys = {trial.counterfactual.key for trial in confirmed}
    hidden = tuple(trial for trial in confirm_losses(tried) if trial.counterfactual.key not in keys)
    shown = keys | {trial.counterfactual.key for trial in hidden}
    together = steps[-1] if steps else None
    return AccuracyExplanation(
        tried=tried,
        confirmed=tuple(
            ConfirmedLoss(trial=trial, share=share) for trial, share in zip(confirmed, _list_shares(steps), strict=True)
        ),
        together=together,
        left=None if together is None or together.share is None else 1 - together.share.value,
        hidden=hidden,
        unconfirmed=tuple(
            trial for trial in tried.trials if trial.share is not None and trial.counterfactual.key not in shown
        ),
        untried=tuple(trial for trial in tried.trials if trial.share is None),
        change=together.counterfactual.change if together is not None else None,
    )


def _list_shares(steps: Sequence[AccuracyTrial]) -> list[float]:
    """What each step takes beyond those before it; one that could not be evaluated takes nothing."""
    totals, now = [0.0], 0.0
    for step in steps:
        now = now if step.share is None else step.share.value
        totals.append(now)
    return [after - before for before, after in itertools.pairwise(totals)]


def _rank(trial: AccuracyTrial) -> float:
    return _share(trial) * (1 if trial.counterfactual.part else 2)


def _share(trial: AccuracyTrial) -> float:
    assert trial.share is not None
    return trial.share.value
