"""Cause: the framework's own recipe."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class FrameworkDefault(Cause):
    """A framework's default leaves padding one-sided, activations unfused and ranges wide; qbench's recipe does not."""

    name = "framework-default"
    title = "the framework's own recipe is used"
    concerns = ("time", "accuracy")

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """qbench's recipe on the same backend."""
        if not situation.case.variant.recipe.framework_default:
            return ()
        return (self.counterfactual("qbench's own recipe", Change(own_recipe=True)),)


CAUSE = FrameworkDefault()
