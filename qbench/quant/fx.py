"""The FX flow: a graph is traced, observers are put into it by a mapping, and it is converted to int8 operators."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch

from qbench.errors import BuildError, ModeImpossible
from qbench.quant import (
    clamps,
    exact,
    forward,
    kernels,
    observers,
    pads,
    probe,
    selection,
    shared_layers,
    shared_ranges,
    torch_ao,
    unobserved,
    widened,
)
from qbench.quant import dynamic as dynamic_layers
from qbench.quant.flow import Batches, Converted, Progress, Shared
from qbench.quant.qat_modes import freeze_batch_norm as freeze_batch_norm
from qbench.quant.qat_modes import freeze_observers as freeze_observers
from qbench.quant.qat_modes import nothing_faked
from qbench.quant.qat_modes import qat_modes as qat_modes
from qbench.quant.recipe import Recipe

_UNMATCHED = "FX has no int8 kernel for it as it stands in this network (pattern not matched)"
_NO_KERNEL = "torch has no static int8 kernel for it; use dynamic"
_KEPT = "qbench_kept_float"  # where a prepared graph remembers the layers that were left out
_CLOSED = "FX does not look into {}; build it of its parts to quantize them"


def static(
    module: Any,
    engine: str,
    recipe: Recipe,
    example: tuple[Any, ...],
    batches: Batches,
    progress: Progress,
    shared: Shared | None = None,
) -> Converted:
    """The int8 GraphModule of an fp32 module in eval mode, calibrated on all batches; the module is copied.

    With ``shared``, ranges that a build of the same network found on the same data are taken over.
    Raises ``BuildError`` where FX cannot trace or convert it, where the process runs another engine, and where
    calibration observed nothing, or no numbers.
    """
    torch_ao.require_engine(engine)
    kept = kept_float(module, recipe, example)
    while True:
        prepared = _calibrated(module, engine, recipe, example, batches, progress, shared, kept)
        few = tuple(tensor[: exact.EXAMPLES] for tensor in next(iter(batches())))
        made, wrong = _converted(prepared, module, engine, recipe, kept, few)
        if wrong.keys() <= kept.keys():
            return made
        kept |= wrong  # and once more without them: what a layer before them gives is quantized no longer


def _calibrated(
    module: Any,
    engine: str,
    recipe: Recipe,
    example: tuple[Any, ...],
    batches: Batches,
    progress: Progress,
    shared: Shared | None,
    kept: dict[str, str],
) -> Any:
    """A copy of the module with observers that have seen all batches, or that know what they would have seen."""
    prepared = _prepared("prepare_fx", copy.deepcopy(module).eval(), engine, recipe, example, kept)

    def run() -> None:
        seen, finite = 0, True
        with torch.inference_mode():
            for batch in batches():
                finite &= unobserved.finite(prepared(*batch))
                seen += len(batch[0])
                progress(f"calibrate, {seen} examples", 0.2 + 0.6 * seen / (seen + 100))
        require_observed(prepared, masks=finite)

    shared_ranges.calibrate(prepared, run, shared)
    unobserved.drop_infinite(prepared)
    return prepared


def dynamic(module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...]) -> Converted:
    """A copy as a graph in which Linear, LSTM and GRU layers and cells hold int8 weights and quantize their activations
    as they run; ``linear -> relu`` becomes one operator, which ``dynamic.by_module`` cannot do."""
    torch_ao.require_engine(engine)
    chosen = dynamic_layers.configurations(module, recipe, example)
    mapping = torch_ao.QConfigMapping()
    for name, config in chosen.items():
        mapping.set_module_name(name, config)
    prepared = _traced(torch_ao.prepare_fx, copy.deepcopy(module).eval(), mapping, example)
    int8 = _lowered(prepared)
    reasons = dynamic_layers.float_reasons(module, recipe, example)
    return Converted(module=int8, float_reasons=_closed_reasons(module, int8) | reasons)


def prepare_qat(module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...]) -> Any:
    """A training-mode GraphModule with fake quantization; raises ``BuildError`` where none was inserted."""
    torch_ao.require_engine(engine)
    kept = kept_float(module, recipe, example)
    prepared = _prepared("prepare_qat_fx", copy.deepcopy(module).train(), engine, recipe, example, kept)
    prepared.meta[_KEPT] = kept
    if not any(_fakes_weights(part) for part in prepared.modules()):
        raise nothing_faked("the model has no layer that FX can quantize")
    return prepared


def convert_qat(prepared: Any, engine: str, recipe: Recipe, example: tuple[Any, ...]) -> Converted:
    """The int8 GraphModule of a trained fake-quantized one, which is copied."""
    torch_ao.require_engine(engine)
    trained = copy.deepcopy(prepared).eval()
    made, _ = _converted(trained, prepared, engine, recipe, prepared.meta.get(_KEPT, {}), example)
    return made


def kept_float(module: Any, recipe: Recipe, example: tuple[Any, ...]) -> dict[str, str]:
    """Submodule name -> why it stays float: the recipe says so, or the engine's kernel for it is wrong on this CPU.
    The framework's default takes no notice of kernels."""
    kept = selection.float_by_recipe(module, recipe, example)
    if not recipe.framework_default:
        kept |= probe.wrong_kernels(module, frozenset(kept))
    return kept


def mapping(module: Any, engine: str, recipe: Recipe, kept: Mapping[str, str], *, training: bool) -> Any:
    """torch's QConfigMapping for the recipe: the engine's default one where it asks for the framework's default, else
    the recipe's own observers in its places; ``kept`` names the submodules that stay float."""
    make = torch_ao.get_default_qat_qconfig_mapping if training else torch_ao.get_default_qconfig_mapping
    with torch_ao.known_warnings():
        made = make(engine)
    if not recipe.framework_default:
        _own(made, engine, recipe, training=training)
        observers.keep_residuals(made, module)
    closed = [name for name, part in module.named_modules() if name and _is_closed(part)]
    for name in (*closed, *kept):
        made.set_module_name(name, None)
    return made


def leave_masks(prepared: Any, examples: tuple[Any, ...]) -> None:
    """Takes the fake quantization away from what is infinite on these examples (one tensor per input) though the
    network's outputs are not: masks of attention."""
    unobserved.drop(prepared, examples, infinite=True)


def require_observed(prepared: Any, *, masks: bool = False) -> None:
    """Raises ``BuildError`` for an observer that saw nothing (torch only warns, and its layer then returns zeros) or
    saw values that are no numbers; with ``masks`` infinite ones pass."""
    blind, endless = [], []
    for node in prepared.graph.nodes:
        observer = clamps.watching(node, prepared)
        inner = getattr(observer, "inner", observer)
        if inner is None or not hasattr(inner, "min_val"):
            continue
        low, high = inner.min_val, inner.max_val
        if low.numel() == 0 or (bool((low == torch.inf).any()) and bool((high == -torch.inf).any())):
            blind.append(_place(node))
        elif not bool(torch.isfinite(low).all() and torch.isfinite(high).all()) and not (
            masks and unobserved.met_infinity(inner)
        ):
            endless.append(_place(node))
    if blind:
        raise BuildError(f"calibration observed nothing at {', '.join(blind[:5])}: is that part of the model unused?")
    if endless:
        raise BuildError(
            f"calibration met infinite values or NaN at {', '.join(endless[:5])}: the fp32 network gives no number on "
            "these examples; check their preprocessing"
        )


def _place(node: Any) -> str:
    source = node.args[0]
    return str(source.target) if source.op == "call_module" else str(source.name)


def _own(made: Any, engine: str, recipe: Recipe, *, training: bool) -> None:
    """Puts the recipe's observers in the place of the engine's default ones."""
    nn, functional = torch.nn, torch.nn.functional
    default, ours = made.global_qconfig, observers.qconfig(engine, recipe, training=training)
    made.set_global(ours)
    for kind, config in list(made.object_type_qconfigs.items()):
        if config == default:
            made.set_object_type(kind, ours)
    for kind in (*observers.transposed(), nn.PReLU, nn.LayerNorm):
        config = observers.qconfig(engine, recipe, training=training, layer=kind)
        made.set_object_type(kind, config)
        called = _FUNCTIONS.get(kind.__name__)
        if called:
            made.set_object_type(getattr(functional, called), config)
    # quantized::matmul makes floats of its inputs, multiplies them and quantizes again: two roundings for nothing.
    for called in (torch.matmul, torch.bmm):
        made.set_object_type(called, None)


_FUNCTIONS = {
    "ConvTranspose1d": "conv_transpose1d",
    "ConvTranspose2d": "conv_transpose2d",
    "ConvTranspose3d": "conv_transpose3d",
    "LayerNorm": "layer_norm",
}


def _prepared(
    prepare: str, module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...], kept: dict[str, str]
) -> Any:
    if not recipe.framework_default:
        _own_prelu(module, kept)
    chosen = mapping(module, engine, recipe, kept, training=module.training)
    prepared = _traced(getattr(torch_ao, prepare), module, chosen, example)
    unobserved.drop(prepared, example, infinite=False)
    shared = shared_layers.share(prepared)
    if not recipe.framework_default:
        observers.unfixed(prepared, engine, recipe, training=module.training)
    if recipe.clip_ranges and not recipe.framework_default:
        clamps.fold(prepared, shared)
    if not recipe.framework_default:
        pads.share(prepared)
    return prepared


def _traced(prepare: Callable[..., Any], module: Any, chosen: Any, example: tuple[Any, ...]) -> Any:
    try:
        with torch_ao.known_warnings():
            return prepare(module, chosen, example)
    except AssertionError as error:
        raise BuildError(
            f"torch.ao refuses this recipe for this model: {error}; name the layer in skip_layers"
        ) from error
    # Tracing runs the user's forward on stand-ins: whatever it does with values fails in its own way.
    except (torch.fx.proxy.TraceError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        if forward.out_of_memory(error):
            raise
        raise ModeImpossible(
            f"FX cannot trace this model ({forward.reason(error)}): its control flow depends on values or shapes; "
            "rewrite that part with tensor operations, or use flow: eager or the onnxruntime backend"
        ) from error


def _converted(
    prepared: Any, module: Any, engine: str, recipe: Recipe, kept: Mapping[str, str], examples: tuple[Any, ...]
) -> tuple[Converted, dict[str, str]]:
    """The int8 module, proven on a few examples; and layer -> why its kernel cannot be used, where one is wrong."""
    clamps.drop(prepared)
    padded = pads.shared(prepared)
    weights = exact.weights(prepared, recipe)
    int8 = _lowered(prepared)
    pads.lower(int8, padded)
    if not recipe.framework_default:
        widened.widen(int8, engine, tuple(tensor[:1] for tensor in examples))
    proof = exact.prove(int8, weights, engine, recipe, examples)
    shuffled = clamps.make_contiguous(int8) if engine == "qnnpack" and not recipe.framework_default else 0
    notes = (
        *exact.notes(proof, engine),
        kernels.slow_note(int8, engine),
        clamps.shuffled_note(int8) if engine == "qnnpack" and not shuffled else None,
    )
    made = Converted(
        module=int8,
        float_reasons=_float_reasons(module, int8, kept),
        notes=tuple(note for note in notes if note),
    )
    return made, {} if recipe.framework_default else proof.wrong()


def _lowered(prepared: Any) -> Any:
    try:
        with torch_ao.known_warnings():
            return torch_ao.convert_fx(prepared)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        if forward.out_of_memory(error):
            raise
        raise BuildError(f"FX cannot convert this model: {error}; name the layer in quantize.*.skip_layers") from error


def _is_closed(part: Any) -> bool:
    """Whether FX takes a module as one operator that it has no int8 kernel for, with all that is in it."""
    nn = torch.nn
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    # A GraphModule has bare nn.Modules between its names.
    plain = type(part) is nn.Module or isinstance(part, containers)
    opaque = type(part).__module__.startswith("torch.nn.") and not plain
    return isinstance(part, observers.never_static()) or (opaque and any(True for _ in part.children()))


class _FloatPReLU(torch.nn.PReLU):  # type: ignore[misc]  # torch is Any to mypy
    """A PReLU that FX does not know: it lowers every PReLU between int8 tensors, also one that has no QConfig."""

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.prelu(x, self.weight)


def _own_prelu(module: Any, kept: dict[str, str]) -> None:
    """Exchanges, in a copy for inference, each PReLU with a single slope for the LeakyReLU that it is, whose int8
    kernel is right where PReLU's is wrong; hides from FX those that stay float."""
    for name, part in list(module.named_modules()):
        if type(part) is not torch.nn.PReLU:
            continue
        if part.num_parameters == 1 and not module.training and selection.below(name, kept) != selection.SKIPPED:
            module.set_submodule(name, torch.nn.LeakyReLU(float(part.weight.detach())))
            kept.pop(name, None)
        elif selection.below(name, kept) is not None:
            part.__class__ = _FloatPReLU


def _fakes_weights(part: Any) -> bool:
    return hasattr(part, "weight_fake_quant") or (
        isinstance(part, torch_ao.FakeQuantizeBase) and part.dtype == torch.qint8
    )


def _float_reasons(module: Any, int8: Any, kept: Mapping[str, str]) -> dict[str, str]:
    """Layer with weights to multiply -> why it stays float, for those that FX left as they were."""
    left = _called(int8)
    found = _closed_reasons(module, int8)
    for name, part in module.named_modules():
        if not isinstance(part, selection.multiplying()):
            continue
        if (reason := selection.below(name, dict(kept))) is not None:
            found[name] = reason
        elif isinstance(part, observers.never_static()):
            found[name] = _NO_KERNEL
        elif name in left and type(int8.get_submodule(name)) is type(part):
            found.setdefault(name, _UNMATCHED)
    return found


def _closed_reasons(module: Any, int8: Any) -> dict[str, str]:
    """Layer -> the opaque module around it that FX took as one operator."""
    left = _called(int8)
    found: dict[str, str] = {}
    for name, part in module.named_modules():
        parts = name.split(".")
        above = next((".".join(parts[:n]) for n in range(1, len(parts)) if ".".join(parts[:n]) in left), None)
        if above is not None and isinstance(part, selection.multiplying()):
            found[name] = _CLOSED.format(f"{type(module.get_submodule(above)).__name__} ({above})")
    return found


def _called(int8: Any) -> set[str]:
    return {str(node.target) for node in int8.graph.nodes if node.op == "call_module"}
