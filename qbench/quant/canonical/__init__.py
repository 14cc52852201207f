"""Canonicalization: an equal fp32 network, written so that quantizers can match its layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from qbench.errors import out_of_memory
from qbench.quant import model_call
from qbench.quant.canonical import (
    attention,
    equivalence,
    folding,
    functional_layers,
    functional_ops,
    graph,
    graph_cleanup,
    materialize_weights,
    replace_subclasses,
    rewrite_untraceable,
)
from qbench.quant.canonical.rewrite import Rewrite, in_words


@dataclass(frozen=True, kw_only=True)
class Canonical:
    """An fp32 module in eval mode and how it differs from the one given.

    - ``rewrites``: a line for each kind of rewrite, with how often and where; empty where nothing was to be done;
    - ``largest_difference``: of any output to the given module's, absolute, over the examples;
    - ``kept``: a line for each thing that looked as if it should be rewritten and was not, with the reason.
    """

    module: Any
    rewrites: tuple[str, ...] = ()
    largest_difference: float = 0.0
    kept: tuple[str, ...] = ()


def canonicalize(
    module: Any, example: tuple[Any, ...], *, training: bool = False, separate_weights: bool = False
) -> Canonical:
    """A copy of ``module`` (eval mode) with the same outputs, rewritten for quantizers.

    - subclasses of Conv and Linear become the plain class with their padding, computed weights (weight norm and other
      parametrizations) plain weights, which ``training`` then changes without the norm;
    - functions with the network's own weights (``F.conv2d(x, self.w)``) become layers;
    - BatchNorm is folded into the layer before it, unless for ``training`` (QAT);
    - a layer that is used twice becomes one instance per use where it has no weights to multiply by, else where
      ``separate_weights`` asks for it: the instances share their tensors;
    - zero padding before a convolution becomes its own where it is symmetric;
    - Identity goes, and dropout unless for ``training``; functional activations become layers, ``+=`` an add;
    - torch's attention and encoder layers are spelled out in Linear layers.

    Layers that remain keep their names. Where FX can trace the network and there was something to do in its graph,
    the result is a GraphModule; else only layers are exchanged, and neighbours found by watching a call. A network
    that carries torch.ao's stubs was written for a quantizer: only its subclasses are replaced. A graph is of
    eval mode: functional dropout does not act in the training of one.

    ``example``: one tensor per input, first axis = example; real inputs, since equality is proved on them, on all at
    once and one alone. A rewrite is undone where an output differs by more than ``equivalence.TOLERANCE`` of its
    tensor's largest value. Raises ``BuildError`` where the network does not take the example or changes from call to
    call.
    """
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        return Canonical(module=module, kept=("a TorchScript network is taken as it is",))
    network = materialize_weights.copy_module(module).eval()
    model_call.of_one_example(network, _take_first(example))
    judge = equivalence.Judge(network, example)
    purpose = _Purpose(training=training, separate_weights=separate_weights)
    work, _ = _attempt(module, example, judge, purpose, only=_ALL)
    if work is None:
        model_call.require_repeatable(network, example=example)
        work = _one_by_one(module, example, judge, purpose)
    return Canonical(
        module=work.module,
        rewrites=in_words(work.rewrites),
        largest_difference=work.difference,
        kept=tuple(work.kept),
    )


def plain_attention(module: Any, example: tuple[Any, ...]) -> Any:
    """A copy with torch's attention and encoder layers spelled out in Linear layers; the module itself where it has
    none, or where the copy's outputs differ.

    In eval mode torch computes an encoder with ``src_key_padding_mask`` on a fast path that gives zeros for what is
    hidden; exporters take the slow one, which does not. The spelled out layers give what the fast path gives.
    """
    copied = materialize_weights.copy_module(module).eval()
    if not attention.spell_out(copied, _take_first(example)):
        return module
    return copied if equivalence.Judge(module, example).difference(copied).none else module


@dataclass(frozen=True, kw_only=True)
class _Purpose:
    """What the network is rewritten for: to be trained, and by a quantizer that needs one module per call."""

    training: bool
    separate_weights: bool


@dataclass(kw_only=True)
class _Rewriting:
    """A network being rewritten; ``difference`` of its outputs, once it is known."""

    module: Any
    rewrites: list[Rewrite] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    difference: float = 0.0


_PLAIN, _GRAPH, _SPELLING, _IDLE, _SHARED = "subclasses", "the graph", "spelling", "idle layers", "shared layers"
_PADDING, _NORM, _ATTENTION, _CALLS = "padding", "BatchNorm", "attention", "functions with weights"
_ALL = (_PLAIN, _ATTENTION, _GRAPH, _CALLS, _SPELLING, _IDLE, _SHARED, _PADDING, _NORM)


def _rewritten(module: Any, example: tuple[Any, ...], purpose: _Purpose, *, only: tuple[str, ...]) -> _Rewriting:
    """A copy of the module with the named kinds of rewrite."""
    work = _Rewriting(module=materialize_weights.copy_module(module).eval())
    padded: list[str] = []
    if _PLAIN in only:
        work.rewrites += materialize_weights.materialize(work.module)
        for step in (
            replace_subclasses.replace(work.module, example, training=purpose.training),
            replace_subclasses.number_paddings(work.module),
        ):
            work.rewrites += step.rewrites
            work.kept += step.kept
            padded += step.padded
    if _ATTENTION in only:
        work.rewrites += attention.spell_out(work.module, example)
    if _written_for_a_quantizer(work.module):
        work.kept.append("the network carries torch.ao's stubs: its structure is left as it is")
        return work
    traced = None
    if _GRAPH in only:
        try:
            traced = graph.trace(work.module, example)
        except graph.Untraceable as reason:
            work.kept.append(f"FX cannot trace the network ({reason}): only layers were rewritten")
    if traced is None:
        _apply(work, _of_layers(work.module, example, training=purpose.training), only)
        return work
    graph_cleanup.lift_constants(traced, padded)
    before = len(work.rewrites)
    work.rewrites += [Rewrite(what="parts taken one by one", name=name) for name in traced.meta[graph.UNPACKED]]
    _apply(work, _of_graph(traced, work.module, example, purpose), only)
    if len(work.rewrites) > before or padded or len(only) < len(_ALL):  # alone, the graph itself is on trial
        work.module = graph.finished(traced)
    return work


_Step = tuple[str, Callable[[], list[Rewrite]]]


def _of_graph(traced: Any, module: Any, example: tuple[Any, ...], purpose: _Purpose) -> list[_Step]:
    steps: list[_Step] = [
        (_IDLE, lambda: graph_cleanup.drop_idle(traced, training=purpose.training)),
        (_CALLS, lambda: functional_layers.replace_layers(traced, module if purpose.training else None)),
        (_SPELLING, lambda: functional_ops.replace_activations(traced) + functional_ops.replace_arithmetic(traced)),
        (_SHARED, lambda: graph_cleanup.separate_shared(traced, weights=purpose.separate_weights)),
        (_PADDING, lambda: folding.fold_paddings(traced)),
        (_NORM, lambda: folding.fold_batch_norms(traced, example)),
    ]
    return steps[:-1] if purpose.training else steps


def _of_layers(module: Any, example: tuple[Any, ...], *, training: bool) -> list[_Step]:
    steps: list[_Step] = [
        (_PADDING, lambda: rewrite_untraceable.fold_paddings(module, example)),
        (_NORM, lambda: rewrite_untraceable.fold_batch_norms(module, example)),
    ]
    return steps[:-1] if training else steps


def _apply(work: _Rewriting, steps: list[_Step], only: tuple[str, ...]) -> None:
    for kind, step in steps:
        if kind in only:
            work.rewrites += step()


def _attempt(
    module: Any, example: tuple[Any, ...], judge: equivalence.Judge, purpose: _Purpose, *, only: tuple[str, ...]
) -> tuple[_Rewriting | None, str]:
    """The module with the named kinds of rewrite where it is equal then; else None and the reason."""
    try:
        work = _rewritten(module, _take_first(example), purpose, only=only)
    except Exception as error:  # the user's forward runs under watch, and can raise anything
        if out_of_memory(error):
            raise
        return None, model_call.reason(error)
    difference = judge.difference(work.module)
    work.difference = difference.largest
    return (work, "") if difference.none else (None, f"the outputs differed by {difference.share:.2g} of the largest")


def _one_by_one(module: Any, example: tuple[Any, ...], judge: equivalence.Judge, purpose: _Purpose) -> _Rewriting:
    """The module with every kind of rewrite that leaves it equal; the others are named in ``kept``."""
    good: tuple[str, ...] = ()
    best = _Rewriting(module=materialize_weights.copy_module(module).eval())
    undone = []
    for kind in _ALL:
        work, reason = _attempt(module, example, judge, purpose, only=(*good, kind))
        if work is None:
            undone.append(f"rewrites of {kind} undone: {reason}")
        else:
            good, best = (*good, kind), work
    best.kept += undone
    return best


def _take_first(example: tuple[Any, ...]) -> tuple[Any, ...]:
    """The first example alone."""
    return tuple(tensor[:1] for tensor in example)


def _written_for_a_quantizer(module: Any) -> bool:
    """Whether stubs or float functionals of torch.ao were placed in it."""
    return any(type(part).__module__.startswith("torch.ao.") for part in module.modules())
