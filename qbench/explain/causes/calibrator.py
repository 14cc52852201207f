"""Cause: the calibrator's ranges do not fit."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change

_OTHERS = ("minmax", "histogram", "mse", "percentile")


class Calibrator(Cause):
    """A range that is too narrow clips, one that is too wide has few levels for most values; calibrators differ in what
    they give up."""

    name = "calibrator"
    title = "the calibrator's ranges do not fit"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The other common calibrators."""
        own = situation.case.variant.recipe.calibrator
        if own is None or situation.case.variant.mode != "static":
            return ()
        return tuple(
            self.counterfactual(f"calibrated by {name}", Change(recipe={"calibrator": name}))
            for name in _OTHERS
            if name != own
        )


CAUSE = Calibrator()
