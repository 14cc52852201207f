"""Cause: the int8 file was made by another tool."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class OwnFile(Cause):
    """Another tool has its own formats, scales and places to convert; qbench quantizes the same network with the same
    layers in int8."""

    name = "own-file"
    title = "the file was quantized by another tool, in another way than qbench's"
    concerns = ("time", "accuracy")

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """qbench's recipe; layers that the file keeps in float stay so."""
        if situation.case.variant.recipe.file is None:
            return ()
        names = situation.float_layers
        text = f"quantized by qbench, {', '.join(names)} in float as in the file" if names else "quantized by qbench"
        change = Change(own_recipe=True, recipe={"skip_layers": names} if names else {})
        return (self.counterfactual(text, change),)


CAUSE = OwnFile()
