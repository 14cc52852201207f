"""Cause: AMX tiles for products that are too small to fill them."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change
from qbench.process import imports


class SmallForAmx(Cause):
    """A tile takes 16 rows at once; ONNX Runtime computes a product of one row in it as well. From 1.32 on it does
    without AMX where the process may use one core as it is imported."""

    name = "small-for-amx"
    title = "products are too small for AMX tiles"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """ONNX Runtime imported on the timed core, where calls were seen to use tiles."""
        if not situation.amx_tiles or situation.timed_core is None:
            return ()
        change = Change(environment=imports.name_cores((situation.timed_core,)))
        return (self.counterfactual("ONNX Runtime imported on one core, which leaves it without AMX", change),)


CAUSE = SmallForAmx()
