"""What ONNX Runtime really ran: the layers that multiply and accumulate, from its own profile."""

from __future__ import annotations

import re
import statistics
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qbench.quant.artifacts import coverage, onnx_file
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import (
    WARMUP_CALLS,
    CallProfile,
    Kind,
    NodeTime,
    median_of_calls,
    plan_watching,
    time_calls,
)
from qbench.quant.onnx import node_names, onnxruntime_session, operator_macs
from qbench.quant.onnx.graph.layers import subgraphs
from qbench.quant.onnx.onnxruntime_profile import Event, ProfiledSession, RuntimeProfile, list_nodes, profile_calls

# What only changes the form of values: between float and int8, and between layouts in memory.
_CONVERSIONS = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast", "ReorderInput", "ReorderOutput"}
_CONTROL_FLOW = {"If", "Loop", "Scan"}  # their time is that of the nodes in them
_SAME_SHAPE = {"QuantizeLinear", "DequantizeLinear", "Identity", "Cast"}

Shape = tuple[int, ...]
_HUNG_ON = re.compile(r"(_token_\d+|_nchwc|_nhwc)$")  # what the runtime hangs on the names of nodes in another layout


@dataclass(frozen=True, kw_only=True)
class Executed:
    """One executed node and the layer that it is; ``names``: those that a node of the file goes by (its own, or that of
    its output where it has none)."""

    names: frozenset[str]
    layer: Layer


def layers(file: Path, example: tuple[onnxruntime_session.Array, ...], *, optimized: bool = True) -> tuple[Layer, ...]:
    """The operators that multiply and accumulate in one inference, in order; multiply-accumulates at batch size 1.

    ``optimized=True`` is what the kernels really do; ``False`` runs the graph as written (the fp32 reference,
    whose names and counts no optimization has touched). ``example`` is a batch of 1, repeated to the batch size that
    the file demands. Constant weights' shapes come from the graph that the runtime wrote, all others from the profile.
    """
    return tuple(call.layer for call in executed(file, example, optimized=optimized))


def executed(
    file: Path, example: tuple[onnxruntime_session.Array, ...], *, optimized: bool = True
) -> tuple[Executed, ...]:
    """``layers`` with the names of their nodes."""
    inputs = onnx_file.tile_batch(file, example)
    return _list_executed(profile_calls(file, inputs, optimized=optimized, lean=True), len(inputs[0]))


def _list_executed(profile: RuntimeProfile, batch: int) -> tuple[Executed, ...]:
    """The layers of the first call, of so many examples."""
    nodes, shapes = {node.name: node for node in list_nodes(profile.graph)}, _Shapes(profile.graph)
    calls: dict[tuple[str, str], Executed] = {}
    for name, event in profile.calls[0]:
        call = _call(event["args"], nodes.get(name), shapes)
        for product in operator_macs.products(call):
            layer = _executed(name, nodes.get(name), call.operator, product, batch)
            previous = calls.get((name, product.name))  # a node of a loop runs several times
            calls[name, product.name] = layer if previous is None else _added(previous, layer)
    return tuple(calls.values())


def time_nodes(file: Path, inputs: tuple[onnxruntime_session.Array, ...], *, threads: int, calls: int) -> CallProfile:
    """The nodes of a call with these inputs, by the runtime's own profile of that many calls."""
    bare = _time_apart(file, inputs, threads, calls)
    profile = profile_calls(file, inputs, calls=WARMUP_CALLS + calls, threads=threads)
    return _take_times(profile, WARMUP_CALLS, bare)


def watch(
    file: Path, inputs: tuple[onnxruntime_session.Array, ...], *, threads: int, seconds: float
) -> tuple[tuple[Executed, ...], CallProfile]:
    """``executed`` and ``time_nodes`` by the same calls, for about ``seconds``; ``inputs`` are a batch of the size that
    the file takes."""
    with ProfiledSession(file, inputs, threads=threads) as session:
        plan = plan_watching(session.run, seconds)
        for _ in range(plan.warmups + plan.calls):
            session.run()
        profile = session.finish()
    bare = _time_apart(file, inputs, threads, plan.calls, plan.warmups) if plan.apart else None
    times = _take_times(profile, len(profile.calls) - plan.calls, bare)
    return _list_executed(profile, len(inputs[0]) if inputs[0].ndim else 1), times


def _time_apart(
    file: Path,
    inputs: tuple[onnxruntime_session.Array, ...],
    threads: int,
    calls: int,
    warmups: int = WARMUP_CALLS,
) -> float:
    """The median of calls that nobody watches, seconds."""
    session = onnxruntime_session.open_session(file, threads=threads)
    feed = dict(zip([value.name for value in session.get_inputs()], inputs, strict=True))
    return time_calls(lambda: session.run(None, feed), calls, warmups)


def _take_times(profile: RuntimeProfile, first: int, bare_seconds: float | None) -> CallProfile:
    """The nodes of the calls from the ``first`` on; ``bare_seconds`` None: watching costs next to nothing."""
    watched = profile.calls[first:]
    nodes, shapes = {node.name: node for node in list_nodes(profile.graph)}, _Shapes(profile.graph)
    events = dict(event for call in watched for event in call if event[1]["args"]["op_name"] not in _CONTROL_FLOW)
    seconds = median_of_calls([_sum_by_node(call, events) for call in watched])
    watched_seconds = statistics.median(profile.call_seconds[first:])
    return CallProfile(
        nodes=tuple(
            _node_time(name, nodes.get(name), _call(event["args"], nodes.get(name), shapes), seconds[name])
            for name, event in events.items()
        ),
        call_seconds=watched_seconds if bare_seconds is None else bare_seconds,
        watched_seconds=watched_seconds,
    )


def _sum_by_node(call: Sequence[tuple[str, Event]], names: Container[str]) -> dict[str, float]:
    """What each node took in one call, seconds; one within a loop runs several times."""
    seconds: dict[str, float] = {}
    for name, event in call:
        if name in names:
            seconds[name] = seconds.get(name, 0.0) + event["dur"] / 1e6
    return seconds


def _node_time(name: str, node: Any, call: operator_macs.Call, seconds: float) -> NodeTime:
    products = operator_macs.products(call)
    kind: Kind = "conversion" if call.operator in _CONVERSIONS else "other"
    if products:
        kind = "int8 product" if any(product.int8 for product in products) else "float product"
    module = node_names.module_of(node) if node is not None else None
    return NodeTime(layer=module or own_name(name), operator=call.operator, kind=kind, seconds=seconds)


def as_float(layers: Sequence[Executed]) -> tuple[Executed, ...]:
    """The layers of an int8 file, as a reference for what is seen to run of it."""
    return tuple(replace(call, layer=replace(call.layer, precision="fp32", weight_bits=None)) for call in layers)


def match(reference: Sequence[Executed], artifact: Sequence[Executed]) -> tuple[Layer, ...]:
    """The reference's layers (as an ONNX file has them), marked with what was executed for them.

    By the names that went into an executed node, or into several that share the layer's work, which is int8 where all
    of them are: a runtime may run branches in another order (ONNX Runtime: of a feature pyramid of ten convolutions,
    all in int8, six would pass for float). What has no name left (a rewritten matrix product, a transposed convolution)
    is matched by its multiply-accumulates, in order. What cannot be counted is kept at the end.
    """
    free = list(artifact)
    layer_of: dict[int, Layer] = {}
    for i, layer in enumerate(reference):
        called = [call for call in free if call.names & layer.names]
        own = [call for call in called if call.layer.macs == layer.layer.macs][:1] or _in_parts(layer, called)
        if own:
            for call in own:
                free.remove(call)
            layer_of[i] = layer.layer.ran_as(min((call.layer for call in own), key=lambda part: part.int8))
    rest = [i for i in range(len(reference)) if i not in layer_of]
    matched = coverage.align_layers([reference[i].layer for i in rest], [call.layer for call in free])
    layer_of |= dict(zip(rest, matched, strict=False))
    return (*(layer_of[i] for i in range(len(reference))), *matched[len(rest) :])


def _in_parts(layer: Executed, calls: Sequence[Executed]) -> list[Executed]:
    """Those calls, where they share the multiply-accumulates of a layer among them; none elsewhere."""
    return list(calls) if sum(call.layer.macs or 0 for call in calls) == layer.layer.macs else []


def own_name(name: str) -> str:
    """The name of the node of a file that an optimized node of ONNX Runtime is made from, as far as it tells."""
    return _HUNG_ON.sub("", name)


def _executed(name: str, node: Any, operator: str, product: operator_macs.Product, batch: int) -> Executed:
    label = (node_names.module_of(node) if node is not None else None) or own_name(name)
    layer = Layer(
        name=f"{label} ({product.name})" if product.name else label,
        operator=operator,
        macs=None if product.macs is None else product.macs // batch,
        precision="int8" if product.int8 else "fp32",
        weight_bits=product.weight_bits,
    )
    names = [name, *(node.output if node is not None else ())]
    return Executed(names=frozenset([*names, *map(own_name, names)]), layer=layer)


def _added(call: Executed, other: Executed) -> Executed:
    """Two executions of one node as one layer."""
    macs = None if call.layer.macs is None or other.layer.macs is None else call.layer.macs + other.layer.macs
    return replace(call, layer=replace(call.layer, macs=macs))


class _Shapes:
    """The shapes of what is constant in a graph and in its subgraphs."""

    def __init__(self, graph: Any) -> None:
        self._makers = {output: node for node in list_nodes(graph) for output in node.output}
        graphs = (graph, *(inner for node in list_nodes(graph) for _, inner in subgraphs(node)))
        shapes = [(tensor.name, tuple(tensor.dims)) for graph in graphs for tensor in graph.initializer]
        self._constants = dict(shapes)
        for name, shape in shapes:  # two branches may call different things by one name: which is meant is not known
            if self._constants.get(name) != shape:
                self._constants.pop(name, None)

    def constant(self, name: str) -> Shape | None:
        """The shape of an initializer, also of one that is quantized and dequantized on its way; None for others."""
        while name not in self._constants and name in self._makers and self._makers[name].op_type in _SAME_SHAPE:
            name = self._makers[name].input[0]
        return self._constants.get(name)


def _call(arguments: Mapping[str, Any], node: Any, shapes: _Shapes) -> operator_macs.Call:
    """An executed operator as its event tells it."""
    shapes_in = [_shape(typed) for typed in arguments["input_type_shape"]]
    return operator_macs.Call(
        operator=arguments["op_name"],
        inputs=tuple(shapes_in) if node is None else _in_place(node, shapes_in, shapes),
        outputs=tuple(_shape(typed) for typed in arguments["output_type_shape"]),
        attributes={} if node is None else _attributes(node),
    )


def _in_place(node: Any, shapes_in: Sequence[Shape], shapes: _Shapes) -> tuple[Shape | None, ...]:
    """The shape of each input of a node, None for an absent one. The profile leaves out absent inputs and weights that
    a kernel has packed for itself: these are constants of the graph."""
    known_shapes: list[Shape | None] = []
    remaining = list(shapes_in)
    for name in node.input:
        constant = shapes.constant(name)
        if not name:
            known_shapes.append(None)
        elif remaining and constant in (None, remaining[0]):
            known_shapes.append(remaining.pop(0))
        else:
            known_shapes.append(constant)
    return tuple(known_shapes)


def _shape(typed: Mapping[str, Any]) -> Shape:
    return tuple(next(iter(typed.values())))


def _attributes(node: Any) -> dict[str, Any]:
    """The numbers and texts of a node by name."""
    kinds = {1: lambda attr: attr.f, 2: lambda attr: attr.i, 3: lambda attr: attr.s.decode(errors="replace")}
    return {attr.name: kinds[attr.type](attr) for attr in node.attribute if attr.type in kinds}
