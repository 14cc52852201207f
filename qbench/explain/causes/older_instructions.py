"""Cause: a variable hides instructions from an engine."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class OlderInstructions(Cause):
    """A variable that limits oneDNN, fbgemm or torch's vector code leaves the CPU's int8 instructions unused."""

    name = "older-instructions"
    title = "a variable hides instructions from the engine"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The process without these variables; empty is as good as unset."""
        names = [variable.partition("=")[0] for variable in situation.hiding_variables]
        if not names:
            return ()
        change = Change(environment=dict.fromkeys(names, ""))
        return (self.counterfactual(f"without {', '.join(situation.hiding_variables)}", change),)


CAUSE = OlderInstructions()
