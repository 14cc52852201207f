"""Cause: a runtime that leaves AMX unused because the process may use one core."""

from __future__ import annotations

import os

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change
from qbench.process import imports


class UnusedAmx(Cause):
    """From 1.32 on ONNX Runtime takes its kernels for AMX only where the process may use two cores as it is imported,
    as one that is started with taskset, or in a container with a cpuset, may not."""

    name = "unused-amx"
    title = "the process may use one core only, which leaves AMX unused"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """ONNX Runtime imported on all cores that the system allows, where calls were seen to use no tiles."""
        if situation.amx_tiles is not False or not situation.pinned:
            return ()
        change = Change(environment=imports.name_cores(range(os.cpu_count() or 1)))
        return (self.counterfactual("ONNX Runtime imported on two cores or more, pinned afterwards", change),)


CAUSE = UnusedAmx()
