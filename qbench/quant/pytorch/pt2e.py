"""The PT2E flow: torch.export, torchao's X86InductorQuantizer, convert; the only module that imports torchao.

What comes out is a graph of float operators between quantize and dequantize nodes: a simulation, slower than fp32. It
becomes int8 kernels when ``quant.artifacts.aoti`` compiles it. The one engine is Inductor's: the job's is ignored.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from qbench.errors import BuildError, ModeImpossible, reraise
from qbench.quant import model_call as forward
from qbench.quant.artifacts import torch_export
from qbench.quant.artifacts.torch_export import known_warnings
from qbench.quant.flow import Batches, Conversion, Converted, QuantizeJob
from qbench.quant.layer_selection import float_by_recipe
from qbench.quant.pytorch import (
    calibration,
    drop_observers,
    exact_integers,
    narrow_weights,
    narrow_weights_pt2e,
    qconfig,
)
from qbench.quant.pytorch.packed_layers import float_weights
from qbench.quant.pytorch.qat_modes import nothing_faked
from qbench.quant.recipe import Recipe

_FLOATS = "qbench_float_layers"


def static(job: QuantizeJob, batches: Batches) -> Converted:
    """The module between quantize and dequantize nodes, with ranges seen on ``batches``.

    Raises ``BuildError`` where torch.export cannot trace it, X86InductorQuantizer cannot annotate it, or an observer
    saw nothing.
    """
    floats, weights = float_by_recipe(job.module, job.recipe, job.example), float_weights(job.module)
    with known_warnings():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

        job.progress("export", 0.1)
        graph = torch_export.export(copy.deepcopy(job.module).eval(), job.example)
        prepared = _annotated(prepare_pt2e, graph, _quantizer(job.recipe, floats), job.recipe)
        calibration.run_batches(prepared, _fitting(batches(), graph.fixed_batch), job.progress)
        _require_observed(prepared)
        job.progress("convert", 0.6)
        converted = _converted(prepared, floats)
        _require_int8_form(converted)
        return _proven(converted, job.recipe, weights)


def dynamic(job: QuantizeJob) -> Converted:
    """The module whose Linear layers hold int8 weights and quantize their input by its range, call by call.

    Raises ``BuildError`` where it has no Linear layer to quantize.
    """
    import torch

    floats = float_by_recipe(job.module, job.recipe, job.example)
    with known_warnings():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

        graph = torch_export.export(copy.deepcopy(job.module).eval(), job.example)
        prepared = _annotated(prepare_pt2e, graph, _quantizer(job.recipe, floats, dynamic=True), job.recipe)
        with torch.no_grad():
            prepared(*job.example)  # the observers of weights see them in a call; without one all scales are 1
        _require_observed(prepared)
        converted = _converted(prepared, floats, dynamic=True)
        _require_linear(converted.module, floats)
        return _proven(converted, job.recipe, float_weights(job.module))


def prepare_qat(job: QuantizeJob) -> Any:
    """A graph in train mode with fake quantization; raises ``BuildError`` where no weight got one."""
    floats = float_by_recipe(job.module, job.recipe, job.example)
    with known_warnings():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

        graph = torch_export.export(copy.deepcopy(job.module).train(), job.example)
        if graph.fixed_batch is not None:
            raise ModeImpossible(
                "QAT by PT2E needs a network that takes batches of any size, and torch.export can only trace this one "
                "for single examples; make its forward independent of the batch size"
            )
        prepared = _annotated(prepare_qat_pt2e, graph, _quantizer(job.recipe, floats, training=True), job.recipe)
    _require_fake_quantize(prepared, job.module, floats)
    torch_export.separate_batch_norm(prepared)
    torch_export.set_batch_norm_constants(prepared, torch_export.batch_norm_constants(job.module))
    prepared.meta[_FLOATS] = floats
    qat_modes(prepared, True)
    return prepared


def qat_modes(prepared: Any, training: bool) -> None:
    """Train or eval mode of BatchNorm and dropout; an exported graph has no ``.train()``."""
    torch_export.set_training(prepared, training)


def freeze_observers(prepared: Any) -> None:
    """Scales and zero points stay as they are from here on."""
    from torchao.quantization.pt2e import disable_observer

    prepared.apply(disable_observer)


def freeze_batch_norm(prepared: Any) -> None:
    """BatchNorm statistics stay as they are from here on, as in the int8 model."""
    torch_export.freeze_batch_norm(prepared)


def convert_qat(job: QuantizeJob) -> Converted:
    """The int8 graph of a trained fake-quantized one, which is changed: BatchNorm is folded into the convolutions."""
    prepared = job.module
    qat_modes(prepared, False)
    torch_export.fold_batch_norm(prepared)
    with known_warnings():
        return _proven(_converted(prepared, prepared.meta[_FLOATS]), job.recipe, {})


def _proven(converted: Converted, recipe: Recipe, weights: Mapping[str, Any]) -> Converted:
    """The int8 graph with weights whose sums hold in the kernels that a package will call; what there is to tell."""
    narrow = bool(recipe.narrow_weights)
    kernels = narrow_weights.Kernels(engine="inductor", target=recipe.cpus, top=127 if recipe.reduce_range else 255)
    sums = narrow_weights_pt2e.hold(converted.module, weights, narrow=narrow, kernels=kernels)
    note = narrow_weights.note(sums, "oneDNN", narrow=narrow, target=recipe.cpus)
    conversion = converted.conversion.with_notes(*converted.conversion.notes, note)
    conversion = dataclasses.replace(conversion, target=narrow_weights.facts(sums, recipe.cpus))
    return dataclasses.replace(converted, conversion=conversion, overflows=bool(sums.left))


def _fitting(batches: Iterable[tuple[Any, ...]], fixed_batch: int | None) -> Iterator[tuple[Any, ...]]:
    """The batches as they are, or example by example where the graph takes single ones only."""
    for batch in batches:
        whole = fixed_batch is None
        yield from (batch,) if whole else zip(*(tensor.split(1) for tensor in batch), strict=True)


def _quantizer(recipe: Recipe, floats: dict[str, str], *, training: bool = False, dynamic: bool = False) -> Any:
    import torch
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer

    class FloatsOnly(X86InductorQuantizer):  # type: ignore[misc]  # torchao is Any to mypy here
        def annotate(self, model: Any) -> Any:
            annotated = super().annotate(model)
            drop_observers.unannotate(annotated.graph)
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
        activation = dataclasses.replace(activation, observer_or_fake_quant_ctr=_observer(recipe))
    return dataclasses.replace(default, input_activation=activation, output_activation=activation, weight=weight)


def _observer(recipe: Recipe) -> Any:
    """The recipe's calibrator (``qconfig.activation_observer``) as torchao takes it, whose base class is another."""
    import torch
    from torchao.quantization.pt2e import ObserverBase

    constructor = qconfig.activation_observer(recipe)

    class Adapted(ObserverBase):  # type: ignore[misc]  # torchao is Any to mypy here
        def __init__(self, dtype: Any, quant_min: int, quant_max: int, qscheme: Any, is_dynamic: bool = False) -> None:
            super().__init__(dtype=dtype, is_dynamic=is_dynamic)
            self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
            # Levels that are named, even the whole 0 to 255, count as a custom range: zero is then at 127, not at 128.
            levels = {} if quant_max == 255 else {"quant_min": quant_min, "quant_max": quant_max}
            self.inner = constructor(dtype=torch.quint8, qscheme=qscheme, **levels)

        def forward(self, x: Any) -> Any:
            return self.inner(x)

        def calculate_qparams(self) -> Any:
            return self.inner.calculate_qparams()

    return Adapted


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


def _annotated(prepare: Callable[[Any, Any], Any], graph: torch_export.Exported, quantizer: Any, recipe: Recipe) -> Any:
    ways_out = "name the layer in skip_layers, or use another backend"
    if not recipe.canonicalize:
        ways_out = "remove canonicalize: false (by default each call gets a module of its own), or " + ways_out
    # torchao's matchers assert and raise in many ways on graphs that they were not written for.
    with reraise(
        BuildError,
        lambda error: (
            f"X86InductorQuantizer cannot annotate this network ({forward.reason(error)}): most often one module is "
            f"called twice; {ways_out}"
        ),
        (AssertionError, ValueError, RuntimeError, NotImplementedError, KeyError, IndexError),
    ):
        return prepare(graph.module(), quantizer)


def _converted(prepared: Any, floats: dict[str, str], *, dynamic: bool = False) -> Converted:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    with exact_integers.refuse_conversion("PT2E"), _own_folding():
        module = convert_pt2e(prepared)
    torch_export.separate_weights(module)
    reasons = torch_export.float_reasons(module, floats, dynamic=dynamic)
    return Converted(module=module, conversion=Conversion(float_reasons=reasons))


@contextmanager
def _own_folding() -> Iterator[None]:
    """Without torchao's folding of BatchNorm, which takes half a minute wherever one is left: what can be folded is
    (``torch_export.fold_batch_norm``), and the rest Inductor folds into float convolutions."""
    from torchao.quantization.pt2e import quantize_pt2e

    theirs = quantize_pt2e._fold_conv_bn_qat
    quantize_pt2e._fold_conv_bn_qat = lambda module: module
    try:
        yield
    finally:
        quantize_pt2e._fold_conv_bn_qat = theirs


def _require_observed(prepared: Any) -> None:
    """Raises ``BuildError`` where an observer saw nothing; infinite values are left to torchao."""
    from torchao.quantization.pt2e import ObserverBase

    observing = ((name, part) for name, part in prepared.named_modules() if isinstance(part, ObserverBase))
    observers = ((name, getattr(part, "inner", part)) for name, part in observing)
    calibration.require_observed(observers, passes=lambda observer: True)


def _require_int8_form(converted: Converted) -> None:
    """Raises ``ModeImpossible`` for a network of none but operators that the quantizer does not know."""
    quantized = any("dequantize_per" in str(node.target) for node in converted.module.graph.nodes)
    reasons = dict.fromkeys(converted.conversion.float_reasons.values())
    if reasons and not quantized and all(reason.startswith(torch_export.NO_INT8_FORM) for reason in reasons):
        raise ModeImpossible(f"{'; '.join(reasons)}, and this model has no other layer; use another backend")


def _require_linear(module: Any, floats: dict[str, str]) -> None:
    if not any("choose_qparams" in str(node.target) for node in module.graph.nodes):
        raise (BuildError if floats else ModeImpossible)(
            "dynamic quantization by PT2E covers Linear layers, and this model has none"
            f"{' that is not skipped' if floats else ''}; use static instead"
        )


def _require_fake_quantize(prepared: Any, module: Any, floats: dict[str, str]) -> None:
    import torch
    from torchao.quantization.pt2e import FakeQuantizeBase

    weights = [part for part in prepared.modules() if isinstance(part, FakeQuantizeBase) and part.dtype == torch.int8]
    if not weights:
        trains = "X86InductorQuantizer trains Linear, Conv1d and Conv2d with fake quantization"
        raise nothing_faked(module, bool(floats), trains)
