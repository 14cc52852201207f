"""Cause: the int8 file that was brought along."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class OwnFile(Cause):
    """A file made elsewhere may have slower forms of kernels, layers in float, or operators that do not fuse here."""

    name = "own-file"
    title = "the int8 file that was brought along is made in a slower way"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The same network by qbench's own recipe."""
        if situation.case.variant.recipe.file is None:
            return ()
        return (self.counterfactual("qbench's own recipe", Change(own_recipe=True)),)


CAUSE = OwnFile()
