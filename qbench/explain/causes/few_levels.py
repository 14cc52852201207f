"""Cause: activations have fewer levels than 8 bits give."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class FewLevels(Cause):
    """7 bits (reduce_range) halve the levels; so does a range symmetric about zero for values that are never below it,
    as behind a ReLU."""

    name = "few-levels"
    title = "activations have fewer than 256 levels"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """All 8 bits, an offset, or both."""
        recipe = situation.case.variant.recipe
        if recipe.framework_default or recipe.file is not None or situation.case.variant.mode != "static":
            return ()
        # Without 7 bits, sums are kept from overflowing by wider steps for the weights that need it.
        bits = {"reduce_range": False, "narrow_weights": True} if recipe.reduce_range else {}
        offset = {"symmetric": False} if recipe.symmetric else {}
        text = " and ".join([*(["8 bits"] if bits else []), *(["an offset"] if offset else [])])
        return (self.counterfactual(f"activations with {text}", Change(recipe={**bits, **offset})),) if text else ()


CAUSE = FewLevels()
