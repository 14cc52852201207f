"""Cause: threads that cost more than they bring."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change


class Threads(Cause):
    """Several threads wait for each other at every layer, which short layers do not repay."""

    name = "threads"
    title = "threads cost more than they bring"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """One thread."""
        if situation.case.threads == 1:
            return ()
        return (self.counterfactual("one thread", Change(threads=1)),)


CAUSE = Threads()
