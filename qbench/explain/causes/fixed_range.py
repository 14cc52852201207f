"""Cause: an operator whose output range is fixed."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class FixedRange(Cause):
    """torch's engines give a sigmoid 256 levels from 0 to 1 (tanh: -1 to 1) whatever its values are: small ones, as of
    a gate that is nearly shut, all become one or two levels."""

    name = "fixed-range"
    title = "an operator's output range is fixed, and its values fill little of it"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """These operators in float, so that what follows quantizes their values by their own range."""
        recipe = situation.case.variant.recipe
        names = tuple(name for name in situation.fixed_ranges if name not in recipe.skip_layers)
        if not names or situation.case.variant.mode != "static" or recipe.framework_default:
            return ()
        change = Change(recipe={"skip_layers": (*recipe.skip_layers, *names)})
        return (self.counterfactual(f"in float: {', '.join(names)}", change),)


CAUSE = FixedRange()
