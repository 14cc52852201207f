"""Cause: one scale for a whole weight."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class PerTensor(Cause):
    """One channel with large weights sets the step of all others, which keep few levels."""

    name = "per-tensor"
    title = "a weight has one scale for all channels"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """A scale for each output channel."""
        recipe = situation.case.variant.recipe
        if recipe.per_channel is not False or recipe.file is not None or recipe.framework_default:
            return ()
        return (self.counterfactual("a scale for each output channel", Change(recipe={"per_channel": True})),)


CAUSE = PerTensor()
