"""Cause: layers that the recipe keeps in float."""

from __future__ import annotations

from typing import Any

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class KeptFloat(Cause):
    """Layers that a recipe leaves out run in float, and values are converted before and behind them."""

    name = "kept-float"
    title = "the recipe keeps layers in float"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """All of them in int8, then each kind of them."""
        recipe = situation.case.variant.recipe
        if recipe.file is not None or recipe.framework_default or situation.case.variant.mode == "dynamic":
            return ()
        proposals: list[tuple[str, dict[str, Any]]] = []
        if recipe.skip_layers:
            proposals.append(("without skip_layers", {"skip_layers": ()}))
        if recipe.last_layer_float:
            proposals.append(("with the last layer in int8", {"last_layer_float": False}))
        if recipe.first_layer_float:
            proposals.append(("with the first layer in int8", {"first_layer_float": False}))
        return tuple(self.counterfactual(text, Change(recipe=fields)) for text, fields in proposals)


CAUSE = KeptFloat()
