"""Eager-mode quantization: stubs, fusion and float islands put in by qbench, or by the network's author.

The same network serves this flow and FX. Where FX has a graph of the network, or of parts of it, qbench places the
stubs in it; where the author placed stubs, they stay and only fusion, calibration and conversion are qbench's.
Every function works on a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qbench.errors import BuildError
from qbench.quant import exact, forward, kernels, selection, torch_ao, widened
from qbench.quant.canonical import attention
from qbench.quant.dynamic import by_module
from qbench.quant.eager import by_hand, chains, graph, kinds, observed, place, qconfigs, regions, trial
from qbench.quant.flow import Batches, Converted, Progress
from qbench.quant.qat_modes import freeze_batch_norm as freeze_batch_norm
from qbench.quant.qat_modes import freeze_observers as freeze_observers
from qbench.quant.qat_modes import nothing_faked
from qbench.quant.qat_modes import qat_modes as qat_modes
from qbench.quant.recipe import Recipe

_REASONS = "qbench_float_reasons"
_NOTES = "qbench_notes"


def static(
    module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...], batches: Batches, progress: Progress
) -> Converted:
    """The int8 module of an fp32 one in eval mode, calibrated on every batch.

    Raises ``BuildError`` where nothing can be quantized, where calibration observed nothing, or where stubs that were
    placed by hand do not fit.
    """
    import torch

    torch_ao.require_engine(engine)
    prepared = _prepared(module, engine, recipe, example, batches, training=False)
    with torch.no_grad():
        for i, batch in enumerate(batches()):
            prepared(*batch)
            progress(f"calibrate, batch {i + 1}", 0.5)
    observed.require_observed(prepared)
    few = tuple(tensor[: exact.EXAMPLES] for tensor in next(iter(batches())))
    return _converted(prepared, engine, recipe, few)


def dynamic(module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...]) -> Converted:
    """A copy whose Linear, LSTM and GRU layers and cells hold int8 weights and quantize activations as they run."""
    return by_module(_own(module, example), engine, recipe, example)


def prepare_qat(module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...]) -> Any:
    """A training-mode module with fake quantization; raises ``BuildError`` where none was inserted on any weight."""
    torch_ao.require_engine(engine)
    prepared = _prepared(module, engine, recipe, example, None, training=True)
    if not any(hasattr(part, "weight_fake_quant") for part in prepared.modules()):
        raise nothing_faked(
            "eager mode trains Linear, Conv2d and Conv3d (Conv1d with a BatchNorm) with fake quantization, and this "
            "network has none left"
        )
    return prepared


def convert_qat(prepared: Any, engine: str, recipe: Recipe, example: tuple[Any, ...]) -> Converted:
    """The int8 module of a trained fake-quantized one, which is left as it was."""
    torch_ao.require_engine(engine)
    copied = copy.deepcopy(prepared).eval()
    for name in (_REASONS, _NOTES):  # a GraphModule's copy leaves them behind
        setattr(copied, name, getattr(prepared, name))
    observed.require_observed(copied)
    return _converted(copied, engine, recipe, example)


def _own(module: Any, example: tuple[Any, ...]) -> Any:
    """A copy in eval mode; torch's attention is spelled out in Linear layers where that gives the same outputs."""
    own = copy.deepcopy(module).eval()
    if not attention.spell_out(own, example):
        return own
    same = graph.same(forward.of_one_example(own, example), forward.of_one_example(module, example))
    return own if same else copy.deepcopy(module).eval()


def _prepared(
    module: Any, engine: str, recipe: Recipe, example: tuple[Any, ...], batches: Batches | None, *, training: bool
) -> Any:
    """A copy with observers, or with fake quantization for training; it carries what stays float, and why."""
    forward.of_one_example(module, example)
    work = _Work(
        own=_own(module, example),
        kept=selection.float_by_recipe(module, recipe, example),
        qconfig=qconfigs.of_layers(engine, recipe, training=training),
        cheap=qconfigs.of_layers(engine, qconfigs.cheap(recipe), training=False),
        clip=qconfigs.clip(recipe),
        reduced=bool(recipe.reduce_range),
        training=training,
    )
    with torch_ao.known_warnings():
        if any(True for _ in regions.stubs(work.own)):
            ready = by_hand.ready(work.own, example, work.qconfig, work.cheap, work.kept, training=training)
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
                observed.once(ready)
    setattr(ready, _REASONS, work.reasons)
    setattr(ready, _NOTES, tuple(work.notes))
    return ready


@dataclass(kw_only=True)
class _Work:
    """One network on its way: qbench's own copy, what the recipe keeps float, the quantization of a layer (for the
    build, and a cheap one for trials), and what there is to tell."""

    own: Any
    kept: dict[str, str]
    qconfig: place.Qconfig
    cheap: place.Qconfig
    clip: chains.Clip | None
    reduced: bool
    training: bool
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # A layer that has several names goes by its first.
        self.names = {id(part): name for name, part in reversed(list(self.own.named_modules()))}
        self.skipped = {id(part) for name, part in self.own.named_modules() if selection.below(name, self.kept)}
        self.reasons = _reasons(self.own, self.kept)
        self.weights = {name: getattr(self.own.get_submodule(name), "weight", None) for name in self.reasons}

    def forget_written_out(self, found: regions.Split) -> None:
        """Takes back why a subclass has no int8 class where tracing made a plain layer of its function call."""
        parts = (part for one in found.regions for part in one.traced.modules())
        plain = {id(part.weight) for part in parts if type(part) in kinds.heavy()}
        for name, weight in self.weights.items():
            if id(weight) in plain and type(self.own.get_submodule(name)) not in kinds.heavy():
                self.reasons.pop(name, None)

    def skips(self, part: Any) -> bool:
        """Whether a part stays float: by the recipe, or because its fixed scale takes all levels where the next layer's
        kernel stands only a reduced range."""
        return id(part) in self.skipped or (self.reduced and type(part) in kinds.fixed())


def _placed(work: _Work, example: tuple[Any, ...], batches: Batches | None) -> Any:
    """The network with qbench's stubs in it."""
    heavy = {id(part): work.names[id(part)] for part in work.own.modules() if type(part) in kinds.heavy()}
    found = regions.split(work.own, example, batches)
    if found.why is not None:
        work.notes.append(f"stubs around {len(found.regions)} parts, FX has no graph of the whole ({found.why})")
    work.forget_written_out(found)
    for part in found.module.modules():
        part.qconfig = None
    inside: set[int] = set()
    for region in found.regions:
        inside |= {id(part) for part in region.traced.modules()}
        _quantize_region(work, region)
    for name in found.unused:
        work.reasons.setdefault(name, regions.UNUSED)
    for part, name in heavy.items():
        if part not in inside:
            work.reasons.setdefault(name, regions.NOT_CALLED if found.why is None else regions.NO_GRAPH)
    return found.module


def _quantize_region(work: _Work, region: regions.Region) -> None:
    proven = trial.prove(
        region.traced,
        region.inputs,
        work.cheap,
        work.skips,
        training=work.training,
        clip=work.clip,
    )
    nodes = list(region.traced.graph.nodes)
    for position, reason in proven.refused.items():
        node = nodes[position]
        part = region.traced.get_submodule(node.target) if node.op == "call_module" else None
        if id(part) in work.names:
            work.reasons[work.names[id(part)]] = reason
    region.traced.train(work.training)
    place.carry_out(region.traced, proven.plan, proven.seen, work.qconfig, training=work.training)


def _reasons(module: Any, kept: Mapping[str, str]) -> dict[str, str]:
    """Name -> reason for each layer that stays float by the recipe or for want of an int8 class."""
    found = {}
    for name, part in module.named_modules():
        reason = selection.below(name, dict(kept)) or kinds.why_float(part)
        if reason and (type(part) in kinds.heavy() or kinds.why_float(part)):
            found[name] = reason
    return found


def _nothing(reasons: Mapping[str, str]) -> str:
    if not reasons:
        return "eager mode found nothing to quantize: the network has no convolution and no Linear layer"
    name, reason = next(iter(reasons.items()))
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"eager mode found nothing to quantize: {name}: {reason}{more}"


def _converted(prepared: Any, engine: str, recipe: Recipe, examples: tuple[Any, ...]) -> Converted:
    """The int8 module, proven on a few examples."""
    reasons, notes = getattr(prepared, _REASONS), getattr(prepared, _NOTES)
    example = tuple(tensor[:1] for tensor in examples)
    weights = exact.weights(prepared, recipe)
    try:
        with torch_ao.known_warnings():
            int8 = torch_ao.convert(prepared, inplace=True).eval()
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        if forward.out_of_memory(error):
            raise
        raise BuildError(
            f"eager mode cannot convert this network: {forward.reason(error)}; name the layer in quantize.*.skip_layers"
        ) from error
    forward.of_one_example(int8, example)
    if not recipe.framework_default:
        widened.widen(int8, engine, example)
    proof = exact.prove(int8, weights, engine, recipe, examples)
    of_kernels = (*exact.notes(proof, engine), kernels.slow_note(int8, engine))
    return Converted(
        module=int8, float_reasons=reasons, notes=(*notes, *(note for note in of_kernels if note is not None))
    )
