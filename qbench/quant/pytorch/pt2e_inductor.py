"""PT2E for Inductor: torchao's X86InductorQuantizer, and weights whose sums hold in oneDNN's kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from qbench.quant.artifacts import torch_export
from qbench.quant.flow import Converted
from qbench.quant.pytorch import drop_observers, narrow_weights, narrow_weights_pt2e
from qbench.quant.pytorch.pt2e_observers import adapt_observer
from qbench.quant.recipe import Recipe

TITLE = "X86InductorQuantizer"
TRAINS = f"{TITLE} trains Linear, Conv1d and Conv2d with fake quantization"
_SUPPORTED = ("conv1d", "conv2d", "linear")


def explain_float(node: Any, operator: str) -> str:
    """Why an operator of a converted graph has no dequantized weight before it."""
    if operator not in _SUPPORTED:
        return f"{TITLE} {torch_export.NO_INT8_FORM} {operator}"
    if (foreign := torch_export.foreign_class(node)) is not None:
        return (
            f"{TITLE} matches torch.nn's own classes, and this {operator} is in {foreign}; "
            "a subclass is replaced (unless canonicalize: false) where it computes the same"
        )
    if operator == "conv1d" and not any(torch_export.is_operator(user, "relu", "relu_") for user in node.users):
        return f"{TITLE} {torch_export.NO_INT8_FORM} conv1d without a ReLU behind it"
    return f"{TITLE} matched no pattern around this {operator}"


def finish(converted: Converted, recipe: Recipe, weights: Mapping[str, Any]) -> Converted:
    """The int8 graph with weights whose sums hold in the kernels that a package will call; what there is to tell."""
    torch_export.separate_weights(converted.module)
    narrow = bool(recipe.narrow_weights)
    kernels = narrow_weights.Kernels(engine="inductor", target=recipe.cpus, top=127 if recipe.reduce_range else 255)
    sums = narrow_weights_pt2e.hold(converted.module, weights, narrow=narrow, kernels=kernels)
    note = narrow_weights.note(sums, "oneDNN", narrow=narrow, target=recipe.cpus)
    conversion = converted.conversion.with_notes(*converted.conversion.notes, note)
    conversion = dataclasses.replace(conversion, target=narrow_weights.facts(sums, recipe.cpus))
    return dataclasses.replace(converted, conversion=conversion, overflows=bool(sums.left))


def make_quantizer(
    recipe: Recipe, floats: dict[str, str], joins: Callable[[Any], Collection[Any]], *, training: bool, dynamic: bool
) -> Any:
    """The quantizer of a recipe, with the layers that it keeps float, each with the reason; ``joins`` finds the other
    nodes of a graph that stay float."""
    import torch
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer

    class FloatsOnly(X86InductorQuantizer):  # type: ignore[misc]  # torchao is Any to mypy here
        def annotate(self, model: Any) -> Any:
            annotated = super().annotate(model)
            drop_observers.unannotate(annotated.graph, joins(model))
            return annotated

    config = _config(recipe, training=training, dynamic=dynamic)
    quantizer = FloatsOnly()
    for name in sorted(floats):
        quantizer.set_module_name_qconfig(name, None)
    if dynamic:  # its convolutions would get dynamic nodes too, for which Inductor has no kernel
        return quantizer.set_module_type_qconfig(torch.nn.Linear, config)
    return quantizer.set_global(config)


def _config(recipe: Recipe, *, training: bool, dynamic: bool) -> Any:
    """torchao's default configuration with the recipe's calibrator, granularity and range."""
    import torch
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import get_default_x86_inductor_quantization_config

    default = get_default_x86_inductor_quantization_config(is_qat=training, is_dynamic=dynamic)
    if recipe.framework_default:
        return default
    # Without torchao's floor of scales (2**-12): a channel of small weights would be left a few levels.
    weight = dataclasses.replace(default.weight, observer_or_fake_quant_ctr=_weight(recipe, training))
    activation = dataclasses.replace(default.input_activation, quant_max=127 if recipe.reduce_range else 255)
    if not dynamic:
        scheme = torch.per_tensor_symmetric if recipe.symmetric else torch.per_tensor_affine
        activation = dataclasses.replace(activation, qscheme=scheme)
    if not dynamic and not training:
        activation = dataclasses.replace(activation, observer_or_fake_quant_ctr=adapt_observer(recipe))
    return dataclasses.replace(default, input_activation=activation, output_activation=activation, weight=weight)


def _weight(recipe: Recipe, training: bool) -> Any:
    """Symmetric int8 weights per channel; of ``per_channel: false``, for kernels that know per-channel ones only, each
    channel has the range of all."""
    from torchao.quantization.pt2e import (
        FakeQuantize,
        FusedMovingAvgObsFakeQuantize,
        MovingAveragePerChannelMinMaxObserver,
        PerChannelMinMaxObserver,
    )

    class OneScale(PerChannelMinMaxObserver):  # type: ignore[misc]  # torchao is Any to mypy here
        def forward(self, x: Any) -> Any:
            if x.numel():
                self.reset_min_max_vals()  # weights are seen whole each time, and change in training
                super().forward(x)
                self.min_val.fill_(float(self.min_val.min()))
                self.max_val.fill_(float(self.max_val.max()))
            return x

    if recipe.per_channel is False:
        return FakeQuantize.with_args(observer=OneScale) if training else OneScale
    if training:
        return FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAveragePerChannelMinMaxObserver)
    return PerChannelMinMaxObserver
