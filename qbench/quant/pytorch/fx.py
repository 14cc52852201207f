"""The FX flow: a graph is traced, observers are put into it by a mapping, and it is converted to int8 operators."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from qbench.errors import BuildError, ModeImpossible, reraise
from qbench.quant import layer_selection
from qbench.quant import model_call as forward
from qbench.quant.canonical.graph import fix_facts_of_weights
from qbench.quant.flow import Batches, Conversion, Converted, QuantizeJob
from qbench.quant.pytorch import (
    calibration,
    clamp_fusion,
    drop_observers,
    exact_integers,
    float_calls,
    int8_padding,
    kernel_probe,
    own_qconfig,
    qconfig,
    shared_layers,
    torch_ao,
)
from qbench.quant.pytorch import dynamic as dynamic_layers
from qbench.quant.pytorch.qat_modes import freeze_batch_norm as freeze_batch_norm
from qbench.quant.pytorch.qat_modes import freeze_observers as freeze_observers
from qbench.quant.pytorch.qat_modes import nothing_faked
from qbench.quant.pytorch.qat_modes import qat_modes as qat_modes
from qbench.quant.recipe import Recipe

_UNMATCHED = "FX has no int8 kernel for it as it stands in this network (pattern not matched)"
_NO_KERNEL = "torch has no static int8 kernel for it; use dynamic"
_KEPT = "qbench_kept_float"  # where a prepared graph remembers the layers that were left out
_CLOSED = "FX does not look into {}; build it of its parts to quantize them"
_QNNPACK_REFUSES = ("QNNPACK backend doesn't support", "Both min and max should be specified for quantized clamp")


def static(job: QuantizeJob, batches: Batches) -> Converted:
    """The int8 GraphModule of an fp32 module in eval mode, calibrated on all batches.

    Raises ``BuildError`` where FX cannot trace or convert it, where the process runs another engine, and where
    calibration observed nothing, or no numbers.
    """
    torch_ao.require_engine(job.engine)

    def convert(float_layers: dict[str, str]) -> tuple[Converted, Mapping[str, str]]:
        prepared = _calibrated(job, batches, float_layers)
        few = calibration.first_examples(batches, exact_integers.EXAMPLES)
        return _converted(prepared, job, float_layers, few, batches())

    return calibration.leave_out_wrong(convert, kept_float(job))


def _calibrated(job: QuantizeJob, batches: Batches, float_layers: dict[str, str]) -> Any:
    """A copy of the module with observers that have seen all batches, or that know what they would have seen."""
    prepared = _prepared("prepare_fx", copy.deepcopy(job.module).eval(), job, float_layers)

    def run() -> None:
        finite = calibration.run_batches(prepared, batches(), job.progress)
        masks = drop_observers.met_infinity if finite else lambda observer: False
        calibration.require_observed(_observers(prepared), passes=masks)

    calibration.calibrate_once(prepared, run, job.shared)
    drop_observers.drop_infinite(prepared)
    return prepared


def dynamic(job: QuantizeJob) -> Converted:
    """A copy as a graph in which Linear, LSTM and GRU layers and cells hold int8 weights and quantize their activations
    as they run; ``linear -> relu`` becomes one operator, which ``dynamic.by_module`` cannot do."""
    torch_ao.require_engine(job.engine)
    mapping = torch_ao.QConfigMapping()
    for name, config in dynamic_layers.configurations(job).items():
        mapping.set_module_name(name, config)
    prepared = _traced(torch_ao.prepare_fx, copy.deepcopy(job.module).eval(), mapping, job.example)
    int8 = _lowered(prepared)
    reasons = dynamic_layers.float_reasons(job)
    reasons = _closed_reasons(job.module, int8) | reasons
    return Converted(module=int8, conversion=Conversion(float_reasons=reasons))


def prepare_qat(job: QuantizeJob) -> Any:
    """A training-mode GraphModule with fake quantization; raises ``BuildError`` where none was inserted."""
    torch_ao.require_engine(job.engine)
    float_layers = kept_float(job)
    prepared = _prepared("prepare_qat_fx", copy.deepcopy(job.module).train(), job, float_layers)
    prepared.meta[_KEPT] = float_layers
    if not any(_fakes_weights(part) for part in prepared.modules()):
        trains = "FX trains Linear, Conv1d, Conv2d and Conv3d with fake quantization"
        skipped = own_qconfig.kept_float(job)
        raise nothing_faked(job.module, bool(skipped), trains)
    return prepared


def convert_qat(job: QuantizeJob) -> Converted:
    """The int8 GraphModule of a trained fake-quantized one."""
    torch_ao.require_engine(job.engine)
    trained = copy.deepcopy(job.module).eval()
    converted, _ = _converted(trained, job, job.module.meta.get(_KEPT, {}), job.example)
    return converted


def kept_float(job: QuantizeJob) -> dict[str, str]:
    """Submodule name -> why it stays float: the recipe says so, or the engine's kernel for it is wrong on this CPU.
    The framework's default takes no notice of kernels."""
    float_layers = own_qconfig.kept_float(job)
    if not job.recipe.framework_default:
        float_layers |= kernel_probe.wrong_kernels(job.module, frozenset(float_layers))
    return float_layers


def mapping(
    module: Any, engine: str, recipe: Recipe, float_layers: Mapping[str, str], *, training: bool, own: Any = None
) -> Any:
    """torch's QConfigMapping for the recipe: that of the network's author (``own``), the engine's default one where it
    asks for the framework's default, else the recipe's own observers in its places; ``float_layers`` names the
    submodules that stay float."""
    make = torch_ao.get_default_qat_qconfig_mapping if training else torch_ao.get_default_qconfig_mapping
    with torch_ao.known_warnings():
        configured = make(engine) if own is None else copy.deepcopy(own.mapping)
    if not recipe.framework_default and own is None:
        _own(configured, engine, recipe, training=training)
        qconfig.keep_residuals(configured, module)
    closed = [name for name, part in module.named_modules() if name and _is_closed(part)]
    for name in (*closed, *float_layers):
        configured.set_module_name(name, None)
    return configured


def leave_masks(prepared: Any, examples: tuple[Any, ...]) -> None:
    """Takes the fake quantization away from what is infinite on these examples (one tensor per input) though the
    network's outputs are not: masks of attention."""
    drop_observers.drop(prepared, examples, infinite=True)


def _observers(prepared: Any) -> Iterator[tuple[str, Any]]:
    """What watches each place of a prepared graph, by the name of the place."""
    for node in prepared.graph.nodes:
        observer = clamp_fusion.watching(node, prepared)
        if observer is not None:
            yield _place(node), getattr(observer, "inner", observer)


def _place(node: Any) -> str:
    source = node.args[0]
    return str(source.target) if source.op == "call_module" else str(source.name)


def _own(configured: Any, engine: str, recipe: Recipe, *, training: bool) -> None:
    """Puts the recipe's observers in the place of the engine's default ones."""
    nn, functional = torch.nn, torch.nn.functional
    configured.set_global(qconfig.qconfig(engine, recipe, training=training))
    for kind in (*qconfig.transposed(), nn.PReLU, nn.LayerNorm):
        config = qconfig.qconfig(engine, recipe, training=training, layer=kind)
        configured.set_object_type(kind, config)
        called = _FUNCTIONS.get(kind.__name__)
        if called:
            configured.set_object_type(getattr(functional, called), config)
    # quantized::matmul makes floats of its inputs, multiplies them and quantizes again: two roundings for nothing.
    for called in (torch.matmul, torch.bmm):
        configured.set_object_type(called, None)


_FUNCTIONS = {
    "ConvTranspose1d": "conv_transpose1d",
    "ConvTranspose2d": "conv_transpose2d",
    "ConvTranspose3d": "conv_transpose3d",
    "LayerNorm": "layer_norm",
}


def _prepared(prepare: str, module: Any, job: QuantizeJob, float_layers: dict[str, str]) -> Any:
    """What torch's ``prepare`` makes of a copy of the job's module, with qbench's corrections."""
    engine, recipe = job.engine, job.recipe
    if not recipe.framework_default:
        _own_prelu(module, float_layers)
    if recipe.joins_in_float and job.own is None:
        module = float_calls.hide(module, job.examples)
    qconfigs = mapping(module, engine, recipe, float_layers, training=module.training, own=job.own)
    prepared = _traced(getattr(torch_ao, prepare), module, qconfigs, job.example)
    fix_facts_of_weights(prepared)
    drop_observers.drop(prepared, job.example, infinite=False)
    shared = shared_layers.share(prepared)
    if not recipe.framework_default and job.own is None:
        qconfig.unfix(prepared, engine, recipe, training=module.training)
    if recipe.clip_ranges and not recipe.framework_default:
        clamp_fusion.fold(prepared, shared)
    if not recipe.framework_default:
        int8_padding.share(prepared)
    return prepared


def _traced(prepare: Callable[..., Any], module: Any, qconfigs: Any, example: tuple[Any, ...]) -> Any:
    # Tracing runs the user's forward on stand-ins: whatever it does with values fails in its own way.
    untraceable = reraise(
        ModeImpossible,
        lambda error: f"FX cannot trace this model ({forward.reason(error)}): {_explain_untraceable(error)}",
        (torch.fx.proxy.TraceError, TypeError, ValueError, RuntimeError, AttributeError, LookupError, ArithmeticError),
    )
    refused = reraise(
        BuildError,
        lambda error: f"torch.ao refuses this recipe for this model: {error}; name the layer in skip_layers",
        AssertionError,
    )
    with untraceable, refused, torch_ao.known_warnings(), torch_ao.without_stack_traces():
        return prepare(module, qconfigs, example, prepare_custom_config=torch_ao.opaque(*float_calls.OPAQUE))


def _explain_untraceable(error: BaseException) -> str:
    """What a network does that FX, which runs it on stand-ins for tensors, cannot follow, and what to do about it."""
    if isinstance(error, torch.fx.proxy.TraceError):
        return "its control flow depends on values or shapes; rewrite that part with tensor operations"
    if isinstance(error, TypeError) and "Proxy" in str(error):
        return (
            "a number is needed where FX has a stand-in for a tensor or its shape; rewrite that part with tensor "
            "operations"
        )
    return "its forward fails on FX's stand-ins for tensors, though not on tensors; rewrite what fails there"


def _converted(
    prepared: Any,
    job: QuantizeJob,
    float_layers: Mapping[str, str],
    examples: tuple[Any, ...],
    calibration: Iterable[tuple[Any, ...]] = (),
) -> tuple[Converted, dict[str, str]]:
    """The int8 module, proven on a few examples; and layer -> why its kernel cannot be used, where one is wrong.
    ``calibration``: batches, over which its biases are corrected (nothing without)."""
    engine, recipe = job.engine, job.recipe
    clamp_fusion.drop(prepared)
    padded = int8_padding.shared(prepared)
    weights = exact_integers.weights(prepared, recipe)
    int8 = _lowered(prepared)
    int8_padding.lower(int8, padded)
    proof = _proven(int8, weights, job, examples, calibration)
    shuffled = clamp_fusion.make_contiguous(int8) if engine == "qnnpack" and not recipe.framework_default else 0
    notes = (
        *exact_integers.notes(proof, int8),
        clamp_fusion.shuffled_note(int8) if engine == "qnnpack" and not shuffled else None,
    )
    conversion = Conversion(float_reasons=_float_reasons(job.module, int8, float_layers), target=proof.target)
    return Converted(module=int8, conversion=conversion.with_notes(*notes)), proof.wrong()


def _proven(
    int8: Any, weights: Any, job: QuantizeJob, examples: tuple[Any, ...], calibration: Iterable[tuple[Any, ...]]
) -> exact_integers.Proof:
    """What ``exact_integers.prove`` says. Raises ``ModeImpossible`` where qnnpack has no operator on bytes for a part
    that has no weights (max_pool3d, a clamp with one end)."""
    stopped = reraise(  # what the user's forward asks of its layers may not be there in int8
        BuildError, lambda error: f"FX's int8 form of this network does not run ({forward.reason(error)})"
    )
    try:
        with stopped:
            return exact_integers.prove(int8, weights, job.engine, job.recipe, examples, calibration)
    except BuildError as error:
        cause = str(error.__cause__)
        if job.engine != "qnnpack" or not cause.startswith(_QNNPACK_REFUSES):
            raise
        raise ModeImpossible(
            f"qnnpack has no operator on bytes for a part of this network ({cause.splitlines()[0]}): use another "
            "engine (fbgemm, x86 or onednn), or the onnxruntime backend"
        ) from error


def _lowered(prepared: Any) -> Any:
    with exact_integers.refuse_conversion("FX"), torch_ao.known_warnings():
        return torch_ao.convert_fx(prepared)


def _is_closed(part: Any) -> bool:
    """Whether FX takes a module as one operator that it has no int8 kernel for, with all that is in it."""
    nn = torch.nn
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    # A GraphModule has bare nn.Modules between its names.
    plain = type(part) is nn.Module or isinstance(part, containers)
    opaque = type(part).__module__.startswith("torch.nn.") and not plain
    return isinstance(part, qconfig.never_static()) or (opaque and any(True for _ in part.children()))


class _FloatPReLU(torch.nn.PReLU):  # type: ignore[misc]  # torch is Any to mypy
    """A PReLU that FX does not know: it lowers every PReLU between int8 tensors, also one that has no QConfig."""

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.prelu(x, self.weight)


def _own_prelu(module: Any, float_layers: dict[str, str]) -> None:
    """Exchanges, in a copy for inference, each PReLU with a single slope for the LeakyReLU that it is, whose int8
    kernel is right where PReLU's is wrong; hides from FX those that stay float."""
    for name, part in list(module.named_modules()):
        if type(part) is not torch.nn.PReLU:
            continue
        if (
            part.num_parameters == 1
            and not module.training
            and layer_selection.below(name, float_layers) != layer_selection.SKIPPED
        ):
            module.set_submodule(name, torch.nn.LeakyReLU(float(part.weight.detach())))
            float_layers.pop(name, None)
        elif layer_selection.below(name, float_layers) is not None:
            part.__class__ = _FloatPReLU


def _fakes_weights(part: Any) -> bool:
    return isinstance(part, torch_ao.FakeQuantizeBase) and part.dtype == torch.qint8


def _float_reasons(module: Any, int8: Any, float_layers: Mapping[str, str]) -> dict[str, str]:
    """Layer with weights to multiply -> why it stays float, for those that FX left as they were."""
    called = _called(int8)
    reasons = _closed_reasons(module, int8)
    for name, part in module.named_modules():
        if not isinstance(part, layer_selection.multiplying()):
            continue
        if (reason := layer_selection.below(name, dict(float_layers))) is not None:
            reasons[name] = reason
        elif isinstance(part, qconfig.never_static()):
            reasons[name] = _NO_KERNEL
        elif name in called and type(int8.get_submodule(name)) is type(part):
            reasons.setdefault(name, _UNMATCHED)
    return reasons


def _closed_reasons(module: Any, int8: Any) -> dict[str, str]:
    """Layer -> the opaque module around it that FX took as one operator."""
    called = _called(int8)
    reasons: dict[str, str] = {}
    for name, part in module.named_modules():
        steps = name.split(".")
        above = next((".".join(steps[:n]) for n in range(1, len(steps)) if ".".join(steps[:n]) in called), None)
        if above is not None and isinstance(part, layer_selection.multiplying()):
            reasons[name] = _CLOSED.format(f"{type(module.get_submodule(above)).__name__} ({above})")
    return reasons


def _called(int8: Any) -> set[str]:
    return {str(node.target) for node in int8.graph.nodes if node.op == "call_module"}
