"""Cause: layers that the recipe keeps in float."""

from __future__ import annotations

from typing import Any

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class KeptFloat(Cause):
    """Layers that a recipe, or a file of the user's, leaves out run in float, with conversions before and behind."""

    name = "kept-float"
    title = "layers are kept in float that could be int8"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """All of them in int8, then each kind of them; of a file of the user's, by quantizing anew."""
        recipe = situation.case.variant.recipe
        if recipe.file is not None:
            names = situation.float_layers
            text = f"quantized by qbench, with {', '.join(names)} in int8"
            return (self.counterfactual(text, Change(own_recipe=True, recipe={"skip_layers": ()})),) if names else ()
        if recipe.framework_default or situation.case.variant.mode == "dynamic":
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
