"""PT2E for ExecuTorch: its XNNPACKQuantizer.

Nothing is done for sums that overflow: with the largest weights and inputs those of XNNPACK's kernels were exact on a
CPU with AVX2 and on emulated ones with AVX2 (Haswell) and SSE4.2 (Nehalem), for Linear, static and dynamic, and for
convolutions 1x1, 3x3, and 3x3 in groups. Kernels for AVX-512, VNNI and ARM were not seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

from qbench.quant.artifacts import torch_export
from qbench.quant.flow import Converted
from qbench.quant.layer_selection import below
from qbench.quant.pytorch import drop_observers
from qbench.quant.pytorch.pt2e_observers import adapt_observer
from qbench.quant.pytorch.qconfig import QNNPACK_SMALLEST
from qbench.quant.recipe import Recipe
from qbench.record.schema import TargetFacts

TITLE = "XNNPACKQuantizer"
TRAINS = f"{TITLE} trains Linear, Conv1d, Conv2d and ConvTranspose2d with fake quantization"
_ANNOTATION = "quantization_annotation"  # torchao's: what to observe around a node
_SUPPORTED = ("conv1d", "conv2d", "conv_transpose2d", "linear")


def explain_float(node: Any, operator: str) -> str:
    """Why an operator of a converted graph has no dequantized weight before it."""
    if operator not in _SUPPORTED:
        return f"{TITLE} {torch_export.NO_INT8_FORM} {operator}"
    return f"{TITLE} matched no pattern around this {operator}"


def finish(converted: Converted, recipe: Recipe, weights: Mapping[str, Any]) -> Converted:
    """The int8 graph as it is."""
    facts = TargetFacts(cpus=recipe.cpus) if recipe.cpus else None
    return dataclasses.replace(converted, conversion=dataclasses.replace(converted.conversion, target=facts))


def make_quantizer(
    recipe: Recipe, floats: dict[str, str], joins: Callable[[Any], Collection[Any]], *, training: bool, dynamic: bool
) -> Any:
    """The quantizer of a recipe, with the layers that it keeps float, each with the reason; ``joins`` finds the other
    nodes of a graph that stay float."""
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer

    class FloatsOnly(XNNPACKQuantizer):  # type: ignore[misc]  # executorch is Any to mypy here
        # Those of BatchNorm in training it exports anew for each network, static ones, too, which have none by now.
        SUPPORTED_PATTERNS = tuple(
            pattern for pattern in XNNPACKQuantizer.SUPPORTED_PATTERNS if training or not pattern.is_qat
        )

        def annotate(self, model: Any) -> Any:
            model.graph.eliminate_dead_code()  # as the patterns that are left out do
            annotated = super().annotate(model)
            if not recipe.framework_default:
                _observe_behind_clamps(annotated.graph)
            drop_observers.unannotate(annotated.graph, joins(model))
            return annotated

    def is_wanted(node: Any) -> bool:
        name = torch_export.layer_name(node)
        return name is None or below(name, floats) is None

    quantizer = FloatsOnly().set_filter_function(is_wanted)
    config = _config(recipe, training=training, dynamic=dynamic)
    if dynamic:  # its convolutions would get dynamic nodes, too, of which XNNPACK takes some and not others
        return quantizer.set_operator_type(torch.ops.aten.linear.default, config)
    return quantizer.set_global(config)


def _observe_behind_clamps(graph: Any) -> None:
    """Observes behind clamps (ReLU6) alone from here on. XNNPACKQuantizer knows ReLU and puts another observer before
    other clamps, whose range is that of values which are cut off next; XNNPACK fuses both with what comes before.

    EfficientNet-Lite0, calibrated on 20 photos, 100 others: SQNR of the logits with minmax 19.5 dB (histogram 19.8, mse
    19.7, percentile 19.6), of XNNPACK's own configuration 8.0.
    """
    import torch
    from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

    clamps = [getattr(torch.ops.aten, name).default for name in ("relu6", "relu6_", "hardtanh", "hardtanh_")]
    for clamp in [node for node in graph.nodes if node.target in clamps]:
        before = clamp.args[0].meta.get(_ANNOTATION)
        if before is None or before.output_qspec is None or len(clamp.args[0].users) > 1:
            continue
        clamp.meta[_ANNOTATION] = QuantizationAnnotation(output_qspec=before.output_qspec, _annotated=True)
        before.output_qspec = None


def _config(recipe: Recipe, *, training: bool, dynamic: bool) -> Any:
    """XNNPACK's default configuration with the recipe's calibrator, granularity and symmetry."""
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import get_symmetric_quantization_config
    from torchao.quantization.pt2e import FusedMovingAvgObsFakeQuantize

    default = get_symmetric_quantization_config(
        is_per_channel=recipe.per_channel is not False, is_qat=training, is_dynamic=dynamic
    )
    if recipe.framework_default:
        return default
    weight = dataclasses.replace(default.weight, observer_or_fake_quant_ctr=_weight(recipe, training))
    if dynamic:
        return dataclasses.replace(default, weight=weight)
    scheme = torch.per_tensor_symmetric if recipe.symmetric else torch.per_tensor_affine
    # Without the floor of scales that XNNPACK's own configuration has (2**-12).
    observer = FusedMovingAvgObsFakeQuantize.with_args() if training else adapt_observer(recipe)
    activation = dataclasses.replace(default.input_activation, qscheme=scheme, observer_or_fake_quant_ctr=observer)
    return dataclasses.replace(default, input_activation=activation, output_activation=activation, weight=weight)


def _weight(recipe: Recipe, training: bool) -> Any:
    """Symmetric int8 weights; no scale so small that a bias, as an int32 of it, overflows."""
    from torchao.quantization.pt2e import (
        FakeQuantize,
        FusedMovingAvgObsFakeQuantize,
        MinMaxObserver,
        MovingAverageMinMaxObserver,
        MovingAveragePerChannelMinMaxObserver,
        PerChannelMinMaxObserver,
    )

    per_channel = recipe.per_channel is not False
    if not training:
        observer = PerChannelMinMaxObserver if per_channel else MinMaxObserver
        return observer.with_args(eps=QNNPACK_SMALLEST)
    if not per_channel:
        return FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, eps=QNNPACK_SMALLEST)

    class PerChannelFakeQuantize(FakeQuantize):  # type: ignore[misc]  # torchao is Any to mypy here
        """By its name torchao (0.18) passes the axis of the channels on, which is the second one of a transposed
        convolution's weight; the fused operator knows the first one only."""

    return PerChannelFakeQuantize.with_args(observer=MovingAveragePerChannelMinMaxObserver, eps=QNNPACK_SMALLEST)
