"""Cause: memory is given back after each call and fetched anew."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change

LEAST_FAULTS = 10.0  # of a call; fewer take less than a hundredth of a millisecond
# glibc gives large blocks back at once unless told (man 3 mallopt).
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1073741824"}


class PageFaults(Cause):
    """glibc's malloc maps large blocks anew for each call, and the kernel clears their pages."""

    name = "page-faults"
    title = "memory is given back after each call and fetched anew"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """malloc told to keep what it has, where calls were seen to fault."""
        if (situation.faults_per_call or 0.0) < LEAST_FAULTS:
            return ()
        return (self.counterfactual("malloc keeps its memory (MALLOC_* variables)", Change(environment=KEEPING)),)


CAUSE = PageFaults()
