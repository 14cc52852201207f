"""Cause: a scale for each output channel."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class PerChannel(Cause):
    """Some kernels requantize more slowly with a scale for each output channel. Weights per tensor cost accuracy."""

    name = "per-channel"
    title = "weights have a scale for each output channel"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """One scale for each weight."""
        recipe = situation.case.variant.recipe
        if not recipe.per_channel or recipe.file is not None or recipe.framework_default:
            return ()
        return (self.counterfactual("weights with one scale each", Change(recipe={"per_channel": False})),)


CAUSE = PerChannel()
