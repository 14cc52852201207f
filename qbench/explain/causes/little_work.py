"""Cause: a call has too little work."""

from __future__ import annotations

from qbench.explain.causes.base import MORE_EXAMPLES, Cause, Counterfactual, Situation
from qbench.explain.change import Change

LONGEST = (
    0.02  # seconds of a call: what calls cost whatever their size, some tenths of a millisecond, is no share of it
)


class LittleWork(Cause):
    """What a call costs whatever its size (Python, the runtime's bookkeeping, conversions of small tensors) weighs most
    where a call is short; several examples in one call share it."""

    name = "little-work"
    title = "a call has too little work"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Eight times as many examples a call; times are for one example. Where a call waits for its weights, the same
        change takes that away."""
        if situation.waits_for_memory or (situation.call_seconds or 0.0) > LONGEST:
            return ()
        size = MORE_EXAMPLES * situation.case.batch_size
        return (
            self.counterfactual(f"batches of {size}, where examples can wait for each other", Change(batch_size=size)),
        )


CAUSE = LittleWork()
