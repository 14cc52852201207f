"""Cause: machine code for an older CPU."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change
from qbench.quant.target import name_cpus, oldest_march


class OlderTarget(Cause):
    """A package that also loads on older CPUs holds no instruction that they lack."""

    name = "older-target"
    title = "its machine code is for an older CPU, too"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Compiled for this machine alone."""
        cpus = situation.case.variant.recipe.cpus
        if not situation.machine_code or oldest_march(cpus) is None:
            return ()
        return (self.counterfactual(f"for this CPU alone, not {name_cpus(cpus)}", Change(recipe={"target": ()})),)


CAUSE = OlderTarget()
