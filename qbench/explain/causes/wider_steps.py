"""Cause: weights have wider steps for the sake of other CPUs."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change
from qbench.quant.target import NATIVE, adds_in_16_bits, name_cpus


class WiderSteps(Cause):
    """Where sums of 16 bits could overflow on a CPU of the target, weights get up to twice the step."""

    name = "wider-steps"
    title = "weights have wider steps, so that no sum overflows on other CPUs"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """An artifact for this machine alone."""
        recipe = situation.case.variant.recipe
        if not recipe.narrow_weights or not adds_in_16_bits(recipe.cpus):
            return ()
        text = f"for this machine alone, not for {name_cpus(recipe.cpus)}"
        return (self.counterfactual(text, Change(recipe={"target": (NATIVE,)})),)


CAUSE = WiderSteps()
