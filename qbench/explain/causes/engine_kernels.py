"""Cause: the engine's kernels are slower than another engine's."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change

_ENGINES = ("fbgemm", "x86", "onednn")  # of one runtime, on x86


class EngineKernels(Cause):
    """The engines of torch run the same modules by kernels of their own, which differ by layer shape and CPU."""

    name = "engine-kernels"
    title = "another engine of torch has faster kernels for these layers"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The same variant on the other engines."""
        own = situation.case.variant.backend
        if own not in (*_ENGINES, "qnnpack") or situation.case.variant.mode == "dynamic":
            return ()
        others = [name for name in _ENGINES if name != own and name in situation.backends]
        return tuple(self.counterfactual(f"on {name}", Change(backend=name)) for name in others)


CAUSE = EngineKernels()
