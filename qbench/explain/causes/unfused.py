"""Cause: operators that could be one stay apart."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class Unfused(Cause):
    """Without the rewriting of the network, a BatchNorm, a padding or an activation that quantizers do not match stays
    an operator of its own, often in float with a conversion on each side; without ranges that end where an activation
    cuts them, the activation stays."""

    name = "unfused"
    title = "operators stay apart that could be one with their layer"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The network rewritten, and activations as the end of a range, where the recipe has either off."""
        recipe = situation.case.variant.recipe
        if recipe.framework_default or recipe.file is not None:
            return ()
        proposals = []
        if not recipe.canonicalize:
            proposals.append(self.counterfactual("the network rewritten first", Change(recipe={"canonicalize": True})))
        if not recipe.clip_ranges and situation.case.variant.mode in ("static", "qat"):
            proposals.append(
                self.counterfactual("ranges end where activations cut them", Change(recipe={"clip_ranges": True}))
            )
        return tuple(proposals)


CAUSE = Unfused()
