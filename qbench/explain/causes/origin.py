"""Causes: who chose how the case is quantized."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class FrameworkDefault(Cause):
    """A framework's default leaves padding one-sided, activations unfused and ranges wide; qbench's recipe does not."""

    name = "framework-default"
    title = "the framework's own recipe is used"
    concerns = ("time", "accuracy")

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """qbench's recipe on the same backend."""
        if not situation.case.variant.recipe.framework_default:
            return ()
        return (self.counterfactual("qbench's own recipe", Change(own_recipe=True)),)


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


FRAMEWORK_DEFAULT = FrameworkDefault()
OWN_FILE = OwnFile()
