"""The trial run of a plan: converted and called on one example, so that what torch cannot do is known at once."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from qbench.errors import BuildError, out_of_memory
from qbench.quant import model_call
from qbench.quant.pytorch.eager import fusion_patterns, graph, insert_stubs, operator_support, plan

Skipped = Callable[[Any], bool]
# dB of an operator on its own: 7 or 8 bits have 30 to 50. Wrong kernels were seen at -3 to 20 (ReLU6 of qnnpack); sums
# that saturate, which a recipe may choose, at 12, and oneDNN's transposed convolution without VNNI at -3 to 2.
_LEAST_LIGHT = 25.0
_LEAST_HEAVY = 3.0
_NO_KERNEL = "torch cannot run it in int8: {}"


@dataclass(frozen=True, kw_only=True)
class Proven:
    """A plan that runs, what flows through the graph on the example, and why nodes (by position) had to stay float."""

    plan: plan.Int8Plan
    values: tuple[graph.Value, ...]
    refused: dict[int, str]


def prove(
    traced: Any,
    inputs: tuple[Any, ...],
    qconfig: insert_stubs.Qconfig,
    skipped: Skipped,
    *,
    training: bool,
    clip: fusion_patterns.Clip | None,
    floats: Mapping[int, str] = MappingProxyType({}),
) -> Proven:
    """The plan with the most in int8 that converts and runs on this engine.

    ``qconfig`` is a static one, cheap to observe; ``clip``: what a ReLU6 or Hardtanh does to the range before it;
    ``floats``: positions that stay float anyway, and why.
    """
    values = graph.values(traced, inputs)
    refused = dict(floats)
    while True:
        chosen = plan.make(traced, values, refused, skipped, training=training, clip=clip)
        if not chosen.int8:
            return Proven(plan=chosen, values=values, refused=refused)
        # The trial is static: what is fused for training only is left to QAT.
        trial = chosen if not training else plan.make(traced, values, refused, skipped, training=False, clip=clip)
        failed = _failed(traced, trial, values, qconfig, inputs)
        if not failed:
            return Proven(plan=chosen, values=values, refused=refused)
        if set(failed) <= set(refused):
            raise BuildError(f"eager mode cannot run this network in int8: {next(iter(failed.values()))}")
        refused |= failed


def _failed(
    traced: Any,
    chosen: plan.Int8Plan,
    values: tuple[graph.Value, ...],
    qconfig: insert_stubs.Qconfig,
    inputs: tuple[Any, ...],
) -> dict[int, str]:
    """Positions that this plan must not quantize, with torch's reason; empty where it converts, runs and is right."""
    import torch

    from qbench.quant.pytorch import torch_ao

    def prepared() -> tuple[Any, dict[Any, int]]:
        trial = copy.deepcopy(traced)
        serves = insert_stubs.carry_out(trial, chosen, values, qconfig, training=False)
        torch_ao.prepare(trial, inplace=True, prepare_custom_config_dict={})
        trial(*inputs)
        return trial, serves

    with torch_ao.known_warnings(), torch.no_grad():
        int8, serves = prepared()
        try:
            torch_ao.convert(int8, inplace=True)
        except Exception as error:  # each class of torch's refuses in its own way
            if out_of_memory(error):
                raise
            return _refusing(*prepared(), lambda part: torch_ao.convert(torch.nn.Sequential(part), inplace=True), error)
        # What is saved is unpacked first: not every engine can.
        unsaved = _refusing(int8, serves, lambda part: part.state_dict(), None)
        return unsaved or _run(int8, serves, chosen, inputs, _meanings(traced, chosen))


def _refusing(
    graph_module: Any, serves: dict[Any, int], attempt: Callable[[Any], Any], cause: Exception | None
) -> dict[int, str]:
    """The positions whose layer raises where each is tried alone, with the reason; raises ``cause`` where none does."""
    reasons = {}
    for node, position in serves.items():
        part = graph_module.get_submodule(node.target) if node.op == "call_module" else None
        if part is None:
            continue
        try:
            attempt(part)
        except Exception as error:  # as above
            if out_of_memory(error):
                raise
            reasons[position] = _NO_KERNEL.format(model_call.reason(error))
    if cause is not None and not reasons:
        raise cause
    return reasons


@dataclass(frozen=True, kw_only=True)
class _Meaning:
    """What an int8 node does in fp32, the least signal to noise (dB) that it must have on its own, and the range that
    counts, since an activation cuts off the rest."""

    of: Callable[..., Any]
    least: float
    ends: tuple[float, float] = (-math.inf, math.inf)


def _meanings(traced: Any, chosen: plan.Int8Plan) -> dict[int, _Meaning]:
    """Position -> meaning of the int8 nodes, fused ones as the sequence that they were; not of arithmetic."""
    import torch

    nodes = list(traced.graph.nodes)
    chains_of = {chain.nodes[0]: chain for chain in chosen.chains}
    meanings: dict[int, _Meaning] = {}
    for i in sorted(chosen.int8):
        node = nodes[i]
        if node.op == "call_module":
            chain = chains_of.get(i, fusion_patterns.Chain(nodes=(i,)))
            layers = [traced.get_submodule(nodes[member].target) for member in chain.nodes]
            least = _LEAST_HEAVY if type(layers[0]) in operator_support.heavy() else _LEAST_LIGHT
            meanings[i] = _Meaning(of=torch.nn.Sequential(*layers), least=least, ends=chain.ends or _Meaning.ends)
        elif node.target not in operator_support.arithmetic():
            of = node.target if node.op == "call_function" else functools.partial(_method, node.target)
            meanings[i] = _Meaning(of=of, least=_LEAST_LIGHT)
    return meanings


def _method(name: str, value: Any, *args: Any, **keywords: Any) -> Any:
    return getattr(value, name)(*args, **keywords)


def _run(
    int8: Any,
    serves: dict[Any, int],
    chosen: plan.Int8Plan,
    inputs: tuple[Any, ...],
    meanings: dict[int, _Meaning],
) -> dict[int, str]:
    """The positions at which operators give other values than in fp32, and the one at which the int8 graph stops."""
    import torch

    last: list[Any] = []
    wrong: dict[int, str] = {}
    first = {position: node for node, position in reversed(serves.items())}

    class Comparer(torch.fx.Interpreter):  # type: ignore[misc]  # torch is Any to mypy here
        def run_node(self, node: Any) -> Any:
            last.append(node)
            args, keywords = self.fetch_args_kwargs_from_env(node)
            result = super().run_node(node)
            position = serves.get(node, -1)
            if position in meanings and first[position] is node and isinstance(result, torch.Tensor):
                meaning = meanings[position]
                off = _wrong(result, meaning.of(*_floats(args), **_floats(keywords)), meaning)
                if off is not None:
                    wrong[position] = off
            return result

    try:
        Comparer(int8).run(*inputs)
    except Exception as error:  # an operator that has no int8 kernel on this engine, for these shapes
        if out_of_memory(error):
            raise
        node, reason = last[-1], _NO_KERNEL.format(model_call.reason(error))
        if serves.get(node) in chosen.int8:
            return wrong | {serves[node]: reason}
        before = {serves[source] for source in node.all_input_nodes if serves.get(source) in chosen.int8}
        return wrong | dict.fromkeys(before or {serves.get(node, -1)}, reason)
    return wrong


def _wrong(result: Any, expected: Any, meaning: _Meaning) -> str | None:
    """How an int8 operator is off from fp32 on the same inputs: by more than a step, and by more noise than it may
    have; None where it is right."""
    if not result.is_quantized:
        return None
    expected = expected.clamp(*meaning.ends)
    error = result.dequantize().clamp(*meaning.ends) - expected
    signal, noise = float(expected.square().mean()), float(error.square().mean())
    right = float(error.abs().max()) <= 1.05 * result.q_scale() or signal >= noise * 10 ** (meaning.least / 10)
    if right or not math.isfinite(noise):  # what is no number in fp32 already is for calibration to tell
        return None
    ratio = 10 * math.log10(max(signal, 1e-30) / noise)
    return f"its int8 kernel on this engine gives wrong values ({ratio:.1f} dB on its own)"


def _floats(values: Any) -> Any:
    """Arguments with every int8 tensor dequantized."""
    import torch

    return torch.fx.node.map_aggregate(
        values, lambda leaf: leaf.dequantize() if isinstance(leaf, torch.Tensor) and leaf.is_quantized else leaf
    )
