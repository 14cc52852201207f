"""Cause: activations are quantized anew at every call."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class DynamicActivations(Cause):
    """Dynamic quantization looks for the range of each activation at every call, and keeps what lies between layers in
    float; ranges that calibration finds once take that away."""

    name = "dynamic-activations"
    title = "activations are quantized anew at every call"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Static on the same backend."""
        if situation.case.variant.mode != "dynamic":
            return ()
        return (self.counterfactual("static: ranges found once, by calibration", Change(mode="static")),)


CAUSE = DynamicActivations()
