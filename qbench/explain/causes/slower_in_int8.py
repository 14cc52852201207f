"""Cause: layers that take longer in int8 than in float."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation, put_in_float

LEAST_LOSS = 0.01  # of a call's time: what a layer must lose to be tried
_MOST = 8


class SlowerInInt8(Cause):
    """A layer with few channels, or without a kernel for its shape, may take longer in int8 than in float, the
    conversions around it not counted."""

    name = "slower-in-int8"
    title = "layers take longer in int8 than in float"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Those that the profiles show, back to float."""
        times, variant = situation.times, situation.case.variant
        if times is None or variant.recipe.framework_default or variant.recipe.file is not None:
            return ()
        known = {layer.name for layer in situation.layers}
        losses = {
            layer.name: layer.int8_seconds - layer.fp32_seconds
            for layer in times.layers
            if layer.kind == "int8 product" and layer.fp32_seconds is not None and layer.name in known
        }
        least = LEAST_LOSS * times.case.call_seconds
        slow = sorted((name for name, loss in losses.items() if loss > least), key=lambda name: -losses[name])[:_MOST]
        if not slow or len(slow) == len(losses):
            return ()
        return (put_in_float(self.name, situation, slow),)


CAUSE = SlowerInInt8()
