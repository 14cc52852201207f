"""Causes: the scales of weights, and the sums of their products."""

from __future__ import annotations

from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.change import Change
from qbench.quant.target import ADD_IN_16_BITS, NATIVE, adds_in_16_bits, name_cpus


class PerTensor(Cause):
    """One channel with large weights sets the step of all others, which keep few levels."""

    name = "per-tensor"
    title = "a weight has one scale for all channels"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """A scale for each output channel."""
        recipe = situation.case.variant.recipe
        if recipe.per_channel is not False or recipe.file is not None or recipe.framework_default:
            return ()
        return (self.counterfactual("a scale for each output channel", Change(recipe={"per_channel": True})),)


class OverflowingSums(Cause):
    """Kernels that add products in 16 bits clip large sums: on CPUs without VNNI, and fbgemm's depthwise ones on every
    CPU."""

    name = "overflowing-sums"
    title = "sums of products may overflow 16 bits"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Wider steps for the weights that need them, here or on the host that the case ran on."""
        recipe, host = situation.case.variant.recipe, situation.case.host
        if recipe.reduce_range or recipe.framework_default or recipe.file is not None:
            return ()
        there = host in ADD_IN_16_BITS and host not in recipe.cpus
        if recipe.narrow_weights is not False and not there:
            return ()
        target = {"target": (host,)} if there else {}
        change = Change(recipe={"narrow_weights": True, "reduce_range": False, **target})
        where = f" on {host}" if there else ""
        text = f"wider steps for weights whose sums could overflow{where}"
        return (self.counterfactual(text, change),)


class WiderSteps(Cause):
    """Where sums of 16 bits could overflow on a CPU of the target, weights get up to twice the step."""

    name = "wider-steps"
    title = "weights have wider steps, so that no sum overflows on other CPUs"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """An artifact for this machine alone."""
        recipe = situation.case.variant.recipe
        if not recipe.narrow_weights or not adds_in_16_bits(recipe.cpus):
            return ()
        text = f"for this machine alone, not for {name_cpus(recipe.cpus)}"
        return (self.counterfactual(text, Change(recipe={"target": (NATIVE,)})),)


class MeanError(Cause):
    """Rounded weights move the mean of what a channel gives, and what follows adds those errors up instead of
    averaging them (Nagel et al. 2019, Data-Free Quantization, section 4)."""

    name = "mean-error"
    title = "rounded weights move the mean of what channels give"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """Biases that give the mean error back."""
        if not _is_scaled_here(situation) or situation.case.variant.recipe.bias_correction:
            return ()
        text = "biases give back the mean error that rounded weights and inputs leave"
        return (self.counterfactual(text, Change(recipe={"bias_correction": True})),)


class UnevenChannels(Cause):
    """A channel of an activation that is much larger than the others sets the step of all."""

    name = "uneven-channels"
    title = "channels of an activation differ much in size"
    concerns = ("accuracy",)

    def propose(self, situation: Situation) -> tuple[Counterfactual, ...]:
        """What is large in activations goes into weights."""
        if not _is_scaled_here(situation) or situation.case.variant.recipe.balance is not None:
            return ()
        text = "large channels balanced between activations and weights"
        return (self.counterfactual(text, Change(recipe={"balance": 0.5})),)


def _is_scaled_here(situation: Situation) -> bool:
    """Whether qbench's own ONNX flow chose the scales, which alone has these keys of a recipe."""
    variant = situation.case.variant
    theirs = variant.recipe.framework_default or variant.recipe.file is not None
    return variant.mode == "static" and variant.recipe.flow == "onnx" and not theirs


PER_TENSOR = PerTensor()
MEAN_ERROR = MeanError()
UNEVEN_CHANNELS = UnevenChannels()
OVERFLOWING_SUMS = OverflowingSums()
WIDER_STEPS = WiderSteps()
