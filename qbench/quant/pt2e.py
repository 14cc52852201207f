"""The PT2E flow: torch.export, torchao's X86InductorQuantizer, convert; the only module that imports torchao.

What comes out is a graph of float operators between quantize and dequantize nodes: a simulation, slower than fp32. It
becomes int8 kernels when ``quant.aoti`` compiles it. There is one engine, Inductor's, so ``engine`` is ignored.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from qbench.errors import BuildError, ModeImpossible
from qbench.quant import exported, forward, graph_sums, observers, sums
from qbench.quant.exported import known_warnings
from qbench.quant.flow import Batches, Converted, Progress
from qbench.quant.packed import float_weights
from qbench.quant.recipe import Recipe
from qbench.quant.selection import float_by_recipe

_FLOATS = "qbench_float_layers"


def static(
    module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...], batches: Batches, progress: Progress
) -> Converted:
    """The module between quantize and dequantize nodes, with ranges seen on ``batches``; ``example`` is a batch of 1.

    Raises ``BuildError`` where torch.export cannot trace it, X86InductorQuantizer cannot annotate it, or an observer
    saw nothing.
    """
    import torch

    floats, weights = float_by_recipe(module, recipe, example), float_weights(module)
    with known_warnings():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

        progress("export", 0.1)
        graph = exported.export(copy.deepcopy(module).eval(), example)
        prepared = _annotated(prepare_pt2e, graph, _quantizer(recipe, floats), recipe)
        progress("calibrate", 0.2)
        with torch.no_grad():
            for batch in batches():
                for one in (batch,) if graph.fixed_batch is None else _singles(batch):
                    prepared(*one)
        _require_observed(prepared)
        progress("convert", 0.6)
        return _proven(_converted(prepared, floats), recipe, weights)


def dynamic(module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...]) -> Converted:
    """The module whose Linear layers hold int8 weights and quantize their input by its range, call by call.

    Raises ``BuildError`` where it has no Linear layer to quantize.
    """
    import torch

    floats = float_by_recipe(module, recipe, example)
    with known_warnings():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

        graph = exported.export(copy.deepcopy(module).eval(), example)
        prepared = _annotated(prepare_pt2e, graph, _quantizer(recipe, floats, dynamic=True), recipe)
        with torch.no_grad():
            prepared(*example)  # the observers of weights see them in a call; without one all scales are 1
        _require_observed(prepared)
        made = _converted(prepared, floats, dynamic=True)
        _require_linear(made.module, floats)
        return _proven(made, recipe, float_weights(module))


def prepare_qat(module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...]) -> Any:
    """A graph in train mode with fake quantization; raises ``BuildError`` where no weight got one."""
    floats = float_by_recipe(module, recipe, example)
    with known_warnings():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

        graph = exported.export(copy.deepcopy(module).train(), example)
        if graph.fixed_batch is not None:
            raise ModeImpossible(
                "QAT by PT2E needs a network that takes batches of any size, and torch.export can only trace this one "
                "for single examples; make its forward independent of the batch size"
            )
        prepared = _annotated(prepare_qat_pt2e, graph, _quantizer(recipe, floats, training=True), recipe)
    _require_fake_quantize(prepared)
    exported.separate_batch_norm(prepared)
    exported.set_batch_norm_constants(prepared, exported.batch_norm_constants(module))
    prepared.meta[_FLOATS] = floats
    qat_modes(prepared, True)
    return prepared


def qat_modes(prepared: Any, training: bool) -> None:
    """Train or eval mode of BatchNorm and dropout; an exported graph has no ``.train()``."""
    exported.set_training(prepared, training)


def freeze_observers(prepared: Any) -> None:
    """Scales and zero points stay as they are from here on."""
    from torchao.quantization.pt2e import disable_observer

    prepared.apply(disable_observer)


def freeze_batch_norm(prepared: Any) -> None:
    """BatchNorm statistics stay as they are from here on, as in the int8 model."""
    exported.freeze_batch_norm(prepared)


def convert_qat(prepared: Any, engine: str, recipe: Recipe, example: tuple[Any, ...]) -> Converted:
    """The int8 graph of a trained fake-quantized one, BatchNorm folded into the convolutions."""
    qat_modes(prepared, False)
    exported.fold_batch_norm(prepared)
    with known_warnings():
        return _proven(_converted(prepared, prepared.meta[_FLOATS]), recipe, {})


def _proven(made: Converted, recipe: Recipe, weights: Mapping[str, Any]) -> Converted:
    """The int8 graph with weights whose sums hold in the kernels that a package will call; what there is to tell."""
    narrow = bool(recipe.narrow_weights)
    found = graph_sums.hold(made.module, weights, narrow=narrow, top=127 if recipe.reduce_range else 255)
    said = sums.note(found, "oneDNN", narrow=narrow)
    return dataclasses.replace(made, notes=(*made.notes, *((said,) if said else ())), overflows=bool(found.left))


def _singles(batch: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [tuple(tensor[i : i + 1] for tensor in batch) for i in range(len(batch[0]))]


def _quantizer(recipe: Recipe, floats: dict[str, str], *, training: bool = False, dynamic: bool = False) -> Any:
    import torch
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import X86InductorQuantizer

    config = _config(recipe, training=training, dynamic=dynamic)
    quantizer = X86InductorQuantizer()
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
    """The recipe's calibrator (``observers.CALIBRATORS``) as torchao takes it, whose base class is another."""
    import torch
    from torchao.quantization.pt2e import ObserverBase

    name = recipe.calibrator or "histogram"
    if name not in observers.CALIBRATORS:
        raise BuildError(f"no calibrator named '{name}'; available: {', '.join(observers.CALIBRATORS)}")
    make: Any = observers.CALIBRATORS[name]
    constructor = make(recipe)

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


def _annotated(prepare: Callable[[Any, Any], Any], graph: exported.Exported, quantizer: Any, recipe: Recipe) -> Any:
    try:
        return prepare(graph.module(), quantizer)
    # torchao's matchers assert and raise in many ways on graphs that they were not written for.
    except (AssertionError, ValueError, RuntimeError, NotImplementedError, KeyError, IndexError) as error:
        if forward.out_of_memory(error):
            raise
        ways_out = "name the layer in skip_layers, or use another backend"
        if not recipe.canonicalize:
            ways_out = "take away canonicalize: false (by default each call gets a module of its own), or " + ways_out
        raise BuildError(
            f"X86InductorQuantizer cannot annotate this network ({forward.reason(error)}): most often one module is "
            f"called twice; {ways_out}"
        ) from error


def _converted(prepared: Any, floats: dict[str, str], *, dynamic: bool = False) -> Converted:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    try:
        with _own_folding():
            module = convert_pt2e(prepared)
    except (AssertionError, ValueError, RuntimeError, NotImplementedError) as error:
        if forward.out_of_memory(error):
            raise
        raise BuildError(
            f"PT2E cannot convert this network ({forward.reason(error)}); name the layer in skip_layers"
        ) from error
    return Converted(module=module, float_reasons=exported.float_reasons(module, floats, dynamic=dynamic))


@contextmanager
def _own_folding() -> Iterator[None]:
    """Without torchao's folding of BatchNorm, which takes half a minute wherever one is left: what can be folded is
    (``exported.fold_batch_norm``), and the rest Inductor folds into float convolutions."""
    from torchao.quantization.pt2e import quantize_pt2e

    theirs = quantize_pt2e._fold_conv_bn_qat
    quantize_pt2e._fold_conv_bn_qat = lambda module: module
    try:
        yield
    finally:
        quantize_pt2e._fold_conv_bn_qat = theirs


def _require_observed(prepared: Any) -> None:
    """torchao only warns about an observer that saw nothing, and its layer then returns zeros."""
    from torchao.quantization.pt2e import ObserverBase

    blind = [
        name
        for name, part in prepared.named_modules()
        if isinstance(part, ObserverBase) and _saw_nothing(getattr(part, "inner", part))
    ]
    if blind:
        raise BuildError(f"calibration observed nothing at {', '.join(blind[:5])}: is that part of the model unused?")


def _require_linear(module: Any, floats: dict[str, str]) -> None:
    if not any("choose_qparams" in str(node.target) for node in module.graph.nodes):
        raise (BuildError if floats else ModeImpossible)(
            "dynamic quantization by PT2E covers Linear layers, and this model has none"
            f"{' that is not skipped' if floats else ''}; use static instead"
        )


def _saw_nothing(observer: Any) -> bool:
    if not hasattr(observer, "min_val"):
        return False
    low, high = observer.min_val, observer.max_val
    return low.numel() == 0 or bool((low > high).any())


def _require_fake_quantize(prepared: Any) -> None:
    import torch
    from torchao.quantization.pt2e import FakeQuantizeBase

    weights = [part for part in prepared.modules() if isinstance(part, FakeQuantizeBase) and part.dtype == torch.int8]
    if not weights:
        raise BuildError(
            "prepare inserted no fake-quantize on any weight: this would be plain fp32 training; "
            "the model has no layer that X86InductorQuantizer can quantize"
        )
