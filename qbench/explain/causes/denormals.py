"""Cause: numbers near zero that the CPU handles in microcode."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change

LEAST_GAIN = 1.03  # of calls in one process, flushed and not in turns: what is worth a trial


class Denormals(Cause):
    """An operation in float on a number below 1.2e-38 takes a hundred cycles and more, unless such numbers are taken as
    zero; layers in float, and activations between them, may hold many."""

    name = "denormals"
    title = "numbers near zero (denormals) are not taken as zero"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Denormals taken as zero, where calls were seen to be faster so."""
        if (situation.flushing_gain or 1.0) < LEAST_GAIN:
            return ()
        return (self.counterfactual("denormals taken as zero", Change(flush_denormals=True)),)


CAUSE = Denormals()
