"""Eager-mode quantization: stubs, fusion and float islands put in by qbench, or by the network's author.

The same network serves this flow and FX. Where FX has a graph of the network, or of parts of it, qbench places the
stubs in it; where the author placed stubs, they stay and only fusion, calibration and conversion are qbench's.
Every function works on a copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qbench.errors import BuildError
from qbench.quant import layer_selection, model_call
from qbench.quant.canonical import attention, materialize_weights
from qbench.quant.flow import Batches, Conversion, Converted, QuantizeJob
from qbench.quant.pytorch import calibration, exact_integers, first_parameter, float_calls, own_qconfig, torch_ao
from qbench.quant.pytorch.dynamic import by_module
from qbench.quant.pytorch.eager import (
    fusion_patterns,
    graph,
    insert_stubs,
    operator_support,
    qconfigs,
    regions,
    user_stubs,
    verify,
)
from qbench.quant.pytorch.qat_modes import freeze_batch_norm as freeze_batch_norm
from qbench.quant.pytorch.qat_modes import freeze_observers as freeze_observers
from qbench.quant.pytorch.qat_modes import nothing_faked
from qbench.quant.pytorch.qat_modes import qat_modes as qat_modes

_REASONS = "qbench_float_reasons"
_NOTES = "qbench_notes"
_OBSERVING = (".activation_post_process", ".weight_fake_quant")  # in the names of observers


def static(job: QuantizeJob, batches: Batches) -> Converted:
    """The int8 module of an fp32 one in eval mode, calibrated on every batch; a layer whose kernel then differs from
    exact integers stays float.

    Raises ``BuildError`` where nothing can be quantized, where calibration observed nothing, or where stubs that the
    network brings do not fit.
    """
    torch_ao.require_engine(job.engine)

    def convert(float_layers: dict[str, str]) -> tuple[Converted, Mapping[str, str]]:
        prepared = _prepared(job, batches, float_layers, training=False)
        calibration.run_batches(prepared, batches(), job.progress)
        calibration.require_observed(_observers_by_layer(prepared))
        few = calibration.first_examples(batches, exact_integers.EXAMPLES)
        converted, wrong = _converted(prepared, job, few, batches())
        return converted, _by_own_name(job.module, wrong)

    float_layers = own_qconfig.kept_float(job)
    return calibration.leave_out_wrong(convert, float_layers)


def dynamic(job: QuantizeJob) -> Converted:
    """A copy whose Linear, LSTM and GRU layers and cells hold int8 weights and quantize activations as they run."""
    return by_module(replace(job, module=_own(job.module, job.example)))


def prepare_qat(job: QuantizeJob) -> Any:
    """A training-mode module with fake quantization; raises ``BuildError`` where none was inserted on any weight."""
    torch_ao.require_engine(job.engine)
    float_layers = own_qconfig.kept_float(job)
    prepared = _prepared(job, None, float_layers, training=True)
    if not any(hasattr(part, "weight_fake_quant") for part in prepared.modules()):
        trains = "eager mode trains Linear, Conv2d and Conv3d (Conv1d with a BatchNorm) with fake quantization"
        raise nothing_faked(job.module, bool(float_layers), trains)
    return prepared


def convert_qat(job: QuantizeJob) -> Converted:
    """The int8 module of a trained fake-quantized one, which is left as it was."""
    torch_ao.require_engine(job.engine)
    copied = regions.copy_network(job.module).eval()
    for name in (_REASONS, _NOTES):  # a GraphModule's copy leaves them behind
        setattr(copied, name, getattr(job.module, name))
    calibration.require_observed(_observers_by_layer(copied))
    return _converted(copied, job, job.example)[0]


def _own(module: Any, example: tuple[Any, ...]) -> Any:
    """A copy in eval mode; torch's attention is spelled out in Linear layers where that gives the same outputs."""
    copied = materialize_weights.copy_module(module).eval()
    if not attention.spell_out(copied, example):
        return copied
    same = graph.same(model_call.of_one_example(copied, example), model_call.of_one_example(module, example))
    return copied if same else materialize_weights.copy_module(module).eval()


def _by_own_name(module: Any, wrong: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with layers of a converted network, by their names in ``module``; a part that FX traced alone lies
    in a wrapper there. A layer that has no name of its own is left out: its note tells of it."""
    names = {name for name, _ in module.named_modules() if name}
    reasons = {}
    for name, why in wrong.items():
        plain = name if name in names else name.replace(".module.", ".").removesuffix(".module")
        if plain in names:
            reasons[plain] = why
    return reasons


def _prepared(job: QuantizeJob, batches: Batches | None, float_layers: dict[str, str], *, training: bool) -> Any:
    """A copy with observers, or with fake quantization for training, but in layers that are ``kept`` float (name ->
    why); it carries what stays float, and why."""
    engine, recipe, example = job.engine, job.recipe, job.example
    model_call.of_one_example(job.module, example)
    work = _EagerNetwork(
        own=qconfigs.mark_own(_own(job.module, example), job.own),
        kept=float_layers,
        qconfig=qconfigs.of_layers(engine, recipe, training=training, own=job.own),
        cheap=qconfigs.of_layers(engine, qconfigs.cheap(recipe), training=False),
        clip=qconfigs.clip(recipe),
        reduced=bool(recipe.reduce_range),
        training=training,
        keeps_floats=recipe.joins_in_float and job.own is None,
    )
    with torch_ao.known_warnings():
        if any(True for _ in regions.stubs(work.own)):
            ready = user_stubs.ready(work.own, example, work.qconfig, work.cheap, work.kept, training=training)
            work.notes.append("stubs where the network's author placed them")
        else:
            ready = _placed(work, example, batches)
        if not any(getattr(part, "qconfig", None) is not None for part in ready.modules()):
            raise BuildError(_nothing(work.reasons))
        ready.train(training)
        if training:
            torch_ao.prepare_qat(ready, inplace=True)
        else:
            torch_ao.prepare(ready, inplace=True, prepare_custom_config_dict={})
            if not recipe.framework_default:
                _observe_once(ready)
    setattr(ready, _REASONS, work.reasons)
    setattr(ready, _NOTES, tuple(work.notes))
    return ready


@dataclass(kw_only=True)
class _EagerNetwork:
    """One network on its way: qbench's own copy, what stays float and why, the quantization of a layer (for the
    build, and a cheap one for trials), and what there is to tell. ``keeps_floats``: calls that
    int8 would spoil stay float."""

    own: Any
    kept: dict[str, str]
    qconfig: insert_stubs.Qconfig
    cheap: insert_stubs.Qconfig
    clip: fusion_patterns.Clip | None
    reduced: bool
    training: bool
    keeps_floats: bool = True
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # A layer that has several names goes by its first.
        self.names = {id(part): name for name, part in reversed(list(self.own.named_modules()))}
        self.skipped = {id(part) for name, part in self.own.named_modules() if layer_selection.below(name, self.kept)}
        self.reasons = _reasons(self.own, self.kept)
        self.weights = {name: getattr(self.own.get_submodule(name), "weight", None) for name in self.reasons}

    def forget_written_out(self, split: regions.Split) -> None:
        """Takes back why a subclass has no int8 class where tracing made a plain layer of its function call; what is
        kept float stays so."""
        traced_parts = (part for region in split.regions for part in region.traced.modules())
        plain = {id(part.weight) for part in traced_parts if type(part) in operator_support.heavy()}
        for name, weight in self.weights.items():
            plainly = id(weight) in plain and type(self.own.get_submodule(name)) not in operator_support.heavy()
            if plainly and not layer_selection.below(name, self.kept):
                self.reasons.pop(name, None)

    def skips(self, part: Any) -> bool:
        """Whether a part stays float: by the recipe, or because its fixed scale takes all levels where the next layer's
        kernel stands only a reduced range."""
        return id(part) in self.skipped or (self.reduced and type(part) in operator_support.fixed())


def _placed(work: _EagerNetwork, example: tuple[Any, ...], batches: Batches | None) -> Any:
    """The network with qbench's stubs in it."""
    heavy = {id(part): work.names[id(part)] for part in work.own.modules() if type(part) in operator_support.heavy()}
    split = regions.split(work.own, example, batches)
    if split.why is not None:
        work.notes.append(f"stubs around {len(split.regions)} parts, FX has no graph of the whole ({split.why})")
    work.forget_written_out(split)
    for part in split.module.modules():
        part.qconfig = None
    inside: set[int] = set()
    for region in split.regions:
        inside |= {id(part) for part in region.traced.modules()}
        _quantize_region(work, region)
    for name in split.unused:
        work.reasons.setdefault(name, regions.UNUSED)
    for part, name in heavy.items():
        if part not in inside:
            work.reasons.setdefault(name, regions.NOT_CALLED if split.why is None else regions.NO_GRAPH)
    return split.module


def _quantize_region(work: _EagerNetwork, region: regions.Region) -> None:
    nodes = list(region.traced.graph.nodes)
    calls = float_calls.find_float_calls(region.traced, [region.inputs]) if work.keeps_floats else ()
    joins = {nodes.index(node): float_calls.WHY for node in calls}
    proven = verify.prove(
        region.traced,
        region.inputs,
        work.cheap,
        work.skips,
        training=work.training,
        clip=work.clip,
        floats=joins,
    )
    for position, reason in proven.refused.items():
        if position in joins:
            continue
        node = nodes[position]
        part = region.traced.get_submodule(node.target) if node.op == "call_module" else None
        if id(part) in work.names:
            work.reasons[work.names[id(part)]] = reason
    region.traced.train(work.training)
    insert_stubs.carry_out(region.traced, proven.plan, proven.values, work.qconfig, training=work.training)


def _reasons(module: Any, float_layers: Mapping[str, str]) -> dict[str, str]:
    """Name -> reason for each layer that stays float by the recipe or for want of an int8 class."""
    reasons = {}
    for name, part in module.named_modules():
        reason = layer_selection.below(name, dict(float_layers)) or operator_support.why_float(part)
        if reason and (type(part) in operator_support.heavy() or operator_support.why_float(part)):
            reasons[name] = reason
    return reasons


def _nothing(reasons: Mapping[str, str]) -> str:
    if not reasons:
        return "eager mode found nothing to quantize: the network has no convolution and no Linear layer"
    name, reason = next(iter(reasons.items()))
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"eager mode found nothing to quantize: {name}: {reason}{more}"


def _converted(
    prepared: Any, job: QuantizeJob, examples: tuple[Any, ...], calibration: Iterable[tuple[Any, ...]] = ()
) -> tuple[Converted, dict[str, str]]:
    """The int8 module, and its layers whose kernels are wrong on a few examples, each with the reason.
    ``calibration``: batches, over which its biases are corrected (nothing without)."""
    reasons, notes = getattr(prepared, _REASONS), getattr(prepared, _NOTES)
    weights = exact_integers.weights(prepared, job.recipe)
    with exact_integers.refuse_conversion("eager mode"), torch_ao.known_warnings():
        int8 = torch_ao.convert(prepared, inplace=True).eval()
    first_parameter.keep_first_parameters(int8, job.module)
    model_call.of_one_example(int8, tuple(tensor[:1] for tensor in examples))
    proof = exact_integers.prove(int8, weights, job.engine, job.recipe, examples, calibration)
    notes = (*notes, *exact_integers.notes(proof, int8))
    conversion = Conversion(notes=notes, float_reasons=reasons, target=proof.target)
    return Converted(module=int8, conversion=conversion), proof.wrong()


def _observers_by_layer(prepared: Any) -> Iterator[tuple[str, Any]]:
    """The observers of a prepared network, each with the layer that it belongs to."""
    for name, part in prepared.named_modules():
        if isinstance(part, torch_ao.ObserverBase):
            yield _layer_of(name), part


def _layer_of(name: str) -> str:
    """The layer that an observer belongs to; one that stands alone in its graph goes by the name of the graph."""
    return min((name.partition(part)[0] for part in _OBSERVING), key=len).removesuffix(".module")


def _observe_once(prepared: Any) -> None:
    """Lets the observers of fused layers see each value once.

    torch.ao puts the observer of a fused layer (conv + relu: an ``nn.Sequential``) among its children, where it runs as
    the last of them, and calls it again from a hook (torch 2.13): twice the time, and a moving average moves twice.
    """
    from torch import nn

    for part in prepared.modules():
        if not isinstance(part, nn.Sequential) or "activation_post_process" not in part._modules:
            continue
        for key, hook in list(part._forward_hooks.items()):
            if getattr(hook, "__name__", "") == "_observer_forward_hook":
                del part._forward_hooks[key]
