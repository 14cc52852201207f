"""Cause: sums that overflow 16 bits."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change
from qbench.quant.target import ADD_IN_16_BITS


class OverflowingSums(Cause):
    """Kernels that add products in 16 bits clip large sums: on CPUs without VNNI, and fbgemm's depthwise ones on every
    CPU."""

    name = "overflowing-sums"
    title = "sums of products may overflow 16 bits"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Wider steps for the weights that need them, here or on the host that the case ran on."""
        recipe, host = situation.case.variant.recipe, situation.case.host
        if recipe.reduce_range or recipe.framework_default or recipe.file is not None:
            return ()
        there = host in ADD_IN_16_BITS and host not in recipe.cpus
        if recipe.narrow_weights is not False and not there:
            return ()
        target = {"target": (host,)} if there else {}
        change = Change(recipe={"narrow_weights": True, "reduce_range": False, **target})
        where = f" on {host}" if there else ""
        text = f"wider steps for weights whose sums could overflow{where}"
        return (self.counterfactual(text, change),)


CAUSE = OverflowingSums()
