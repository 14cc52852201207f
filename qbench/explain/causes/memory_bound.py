"""Cause: a call waits for its weights."""

from __future__ import annotations

from qbench import formatting
from qbench.explain.causes.base import MORE_EXAMPLES, Cause, Counterfactual, Situation
from qbench.explain.change import Change


class MemoryBound(Cause):
    """A call of one example reads every weight of a linear layer for one product; where it takes about as long as this
    core takes to read so many bytes, faster arithmetic gains nothing (roofline: Williams, Waterman, Patterson, CACM 52
    (2009), 65-76). Several examples in one call share the reading."""

    name = "memory-bound"
    title = "a call waits for its weights to be read from memory"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Eight times as many examples a call, where reading explains most of it."""
        floor = situation.reading_seconds
        if not situation.waits_for_memory or floor is None:
            return ()
        size = MORE_EXAMPLES * situation.case.batch_size
        text = f"batches of {size}, which share the {formatting.duration(floor)} that reading the weights takes"
        return (self.counterfactual(text, Change(batch_size=size)),)


CAUSE = MemoryBound()
