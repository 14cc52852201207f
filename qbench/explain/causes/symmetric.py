"""Cause: activations are symmetric."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class Symmetric(Cause):
    """Signed activations have slower kernels where an unsigned byte times a signed one is an instruction of the CPU,
    and some engines compute them in float."""

    name = "symmetric"
    title = "activations are symmetric about zero"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Affine activations."""
        recipe = situation.case.variant.recipe
        if not recipe.symmetric or recipe.framework_default or recipe.file is not None:
            return ()
        return (self.counterfactual("affine activations", Change(recipe={"symmetric": False})),)


CAUSE = Symmetric()
