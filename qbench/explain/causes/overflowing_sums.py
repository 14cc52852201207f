"""Cause: sums that overflow 16 bits."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class OverflowingSums(Cause):
    """Kernels that add products in 16 bits clip large sums: on CPUs without VNNI, and fbgemm's depthwise ones on every
    CPU."""

    name = "overflowing-sums"
    title = "sums of products may overflow 16 bits"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Wider steps for the weights that need them."""
        recipe = situation.case.variant.recipe
        overflow = recipe.narrow_weights is False and not recipe.reduce_range
        if not overflow or recipe.framework_default or recipe.file is not None:
            return ()
        change = Change(recipe={"narrow_weights": True, "reduce_range": False})
        return (self.counterfactual("wider steps for weights whose sums could overflow (narrow_weights)", change),)


CAUSE = OverflowingSums()
