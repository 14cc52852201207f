"""Causes: which kernels run a layer, and how fast they are for it."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation, put_in_float
from qbench.explain.change import Change

_ENGINES = ("fbgemm", "x86", "onednn")  # of one runtime, on x86


class EngineKernels(Cause):
    """The engines of torch run the same modules by kernels of their own, which differ by layer shape and CPU."""

    name = "engine-kernels"
    title = "another engine of torch has faster kernels for these layers"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """The same variant on the other engines."""
        variant = situation.case.variant
        backend, brought = variant.backend, variant.model.own_int8(variant.recipe.name)
        if backend not in (*_ENGINES, "qnnpack") or variant.mode == "dynamic":
            return ()
        if brought is not None and brought.engine is not None:  # whoever named it has chosen
            return ()
        engines = [name for name in _ENGINES if name != backend and name in situation.backends]
        return tuple(self.counterfactual(f"on {name}", Change(backend=name)) for name in engines)


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
        names = {layer.name for layer in situation.layers}
        losses = {
            layer.name: layer.int8_seconds - layer.fp32_seconds
            for layer in times.layers
            if layer.kind == "int8 product" and layer.fp32_seconds is not None and layer.name in names
        }
        least = LEAST_LOSS * times.case.call_seconds
        slow = sorted((name for name, loss in losses.items() if loss > least), key=lambda name: -losses[name])[:_MOST]
        if not slow or len(slow) == len(losses):
            return ()
        return (put_in_float(self.name, situation, slow),)


class DynamicActivations(Cause):
    """Dynamic quantization looks for the range of each activation at every call, and keeps what lies between layers in
    float; ranges that calibration finds once take that away."""

    name = "dynamic-activations"
    title = "activations are quantized anew at every call"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Static on the same backend."""
        if situation.case.variant.mode != "dynamic":
            return ()
        return (self.counterfactual("static: ranges found once, by calibration", Change(mode="static")),)


class Symmetric(Cause):
    """Signed activations have slower kernels where an unsigned byte times a signed one is an instruction of the CPU,
    and some engines compute them in float."""

    name = "symmetric"
    title = "activations are symmetric about zero"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Affine activations."""
        recipe = situation.case.variant.recipe
        if not recipe.symmetric or recipe.framework_default or recipe.file is not None:
            return ()
        return (self.counterfactual("affine activations", Change(recipe={"symmetric": False})),)


class PerChannel(Cause):
    """Some kernels requantize more slowly with a scale for each output channel. Weights per tensor cost accuracy."""

    name = "per-channel"
    title = "weights have a scale for each output channel"

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """One scale for each weight."""
        recipe = situation.case.variant.recipe
        if not recipe.per_channel or recipe.file is not None or recipe.framework_default:
            return ()
        return (self.counterfactual("weights with one scale each", Change(recipe={"per_channel": False})),)


ENGINE_KERNELS = EngineKernels()
SLOWER_IN_INT8 = SlowerInInt8()
DYNAMIC_ACTIVATIONS = DynamicActivations()
SYMMETRIC = Symmetric()
PER_CHANNEL = PerChannel()
