"""Calls of a graph that int8 would spoil: joins of what one scale cannot hold, and arithmetic behind the last layers.

Every quantizer of torch's gives all that a concatenation reads and returns one scale: boxes of hundreds of pixels
beside scores of up to one. Where the step of that scale is larger than what a small input has to say, the join stays
float, and with it what hands its values on; each input keeps the scale of its own up to there. What only layers with
weights read is left as it is: their kernels take one scale.

And where no layer with weights follows, nothing is won by bytes: sums and products that make boxes of what the last
layers give stay float, with all behind them. Of 96 pixels one step is 0.4, and each operator adds its own. Mean average
precision of shapes-detector against fp32, in points, with int8 in both places and so: onednn by FX -7.8 and -0.1 (in
0.9 of the time), qnnpack -7.8 and -0.2, ExecuTorch -5.9 and -0.1 (qbench run suites/detection.yaml).

Scores of a detector with three heads joined to boxes, against fp32, on onednn (FX), qnnpack, Inductor and ExecuTorch:
0 to 26 dB with one scale, 48 to 77 dB so (random weights; in qbench's files for ONNX Runtime and OpenVINO, where joins
are apart anyway, 52 to 82 dB).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from qbench.quant.analysis.joined_ranges import Seen, is_uneven
from qbench.quant.canonical.graph import Untraceable, free_name, trace
from qbench.quant.layer_selection import multiplying

WHY = "int8 would spoil what it gives"
_JOINS = ("cat", "concat", "concatenate", "stack")
# What makes one tensor of several, or another of one: where it starts what follows the last layers, it stays float.
_ARITHMETIC = frozenset(("add", "iadd", "add_", "sub", "isub", "sub_", "rsub", "mul", "imul", "mul_", "div", "truediv"))
# What hands values on as they are, or some of them.
_CARRIERS = frozenset(
    (
        *(
            "flatten",
            "unflatten",
            "reshape",
            "reshape_as",
            "view",
            "view_as",
            "permute",
            "transpose",
            "movedim",
            "swapaxes",
        ),
        *("t", "contiguous", "clone", "detach", "squeeze", "unsqueeze", "split", "split_with_sizes", "chunk", "unbind"),
        *("getitem", "slice", "select", "narrow", "index_select", "expand", "expand_as", "repeat", "flip", "roll"),
        *("interpolate", "upsample_nearest2d", "upsample_nearest1d", "upsample", "max_pool1d", "max_pool2d"),
        *("maxpool1d", "maxpool2d", "relu", "relu_", "dropout", "identity", "pixel_shuffle", "pixelshuffle", "alias"),
    )
)
_MULTIPLYING = frozenset(
    (
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "linear",
        "matmul",
        "bmm",
    )
)


def find_float_calls(graph_module: Any, examples: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The calls of a float graph, in its order, that are to stay float: joins that one scale cannot hold on these
    examples (batches of one), and what hands on their values; joins, sums and products behind the last layers with
    weights, and all behind them."""
    nodes = list(graph_module.graph.nodes)
    named = {node: _name(graph_module, node) for node in nodes}
    last = _find_last(graph_module, nodes)
    if not any(name in _JOINS or (name in _ARITHMETIC and node in last) for node, name in named.items()):
        return []
    looked = _run(graph_module, examples)
    uneven = {node for node, inputs in looked.seen.items() if is_uneven(inputs.values())}
    chosen: dict[Any, None] = {}
    for node, name in named.items():
        follows = any(source in chosen for source in node.all_input_nodes)
        if node not in looked.floats:
            continue
        if name and node in last:
            apart = follows or name in _JOINS or name in _ARITHMETIC
        else:
            apart = follows and (name in _JOINS or name in _CARRIERS)
            apart = apart or (node in uneven and not _is_for_layers(graph_module, node))
        if apart:
            chosen[node] = None
    return list(chosen)


def name_joins(graph_module: Any, examples: Iterable[tuple[Any, ...]]) -> tuple[str, ...]:
    """The names of those of ``find_float_calls`` that make one tensor of several, or another of one: what hands their
    values on is left out."""
    chosen = find_float_calls(graph_module, examples)
    return tuple(node.name for node in chosen if _name(graph_module, node) in {*_JOINS, *_ARITHMETIC})


def _find_last(graph_module: Any, nodes: Sequence[Any]) -> set[Any]:
    """The nodes behind a layer with weights that no other follows."""
    before, behind = set[Any](), set[Any]()
    for node in reversed(nodes):
        if any(user in before or _multiplies(graph_module, user) for user in node.users):
            before.add(node)
    for node in nodes:
        if any(source in behind or _multiplies(graph_module, source) for source in node.all_input_nodes):
            behind.add(node)
    return {node for node in behind - before if not _multiplies(graph_module, node)}


def _run(graph_module: Any, examples: Iterable[tuple[Any, ...]]) -> _Looking:
    """What the graph computes on these examples."""
    runner = _Looking(graph_module)
    modes = {part: part.training for part in graph_module.modules()}
    try:
        for part in modes:
            part.training = False
        with torch.no_grad():
            for example in examples:
                runner.run(*example)
    finally:
        for part, training in modes.items():
            part.training = training
    return runner


class _Looking(torch.fx.Interpreter):  # type: ignore[misc]  # torch is Any to mypy
    """Runs a graph and keeps what the inputs of its joins were, and which calls give floats, alone or several."""

    def __init__(self, graph_module: Any) -> None:
        super().__init__(graph_module)
        self.seen: dict[Any, dict[Any, Seen]] = {}
        self.floats: set[Any] = set()

    def run_node(self, n: Any) -> Any:
        if _name(self.module, n) in _JOINS:
            inputs = self.seen.setdefault(n, {})
            for source in n.all_input_nodes:
                value = self.env[source]
                if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
                    inputs.setdefault(source, Seen()).add(value.detach().numpy())
        result = super().run_node(n)
        parts = result if isinstance(result, tuple | list) else (result,)
        if all(isinstance(part, torch.Tensor) and part.is_floating_point() for part in parts):
            self.floats.add(n)
        return result


def _is_for_layers(graph_module: Any, node: Any) -> bool:
    """Whether all that reads a join's values computes with weights."""
    return all(_multiplies(graph_module, end) for end in _list_ends(graph_module, node, set()))


def _list_ends(graph_module: Any, node: Any, seen: set[Any]) -> Iterator[Any]:
    for user in node.users:
        if user in seen:
            continue
        seen.add(user)
        name = _name(graph_module, user)
        if name in _JOINS or name in _CARRIERS:
            yield from _list_ends(graph_module, user, seen)
        else:
            yield user


def _multiplies(graph_module: Any, node: Any) -> bool:
    if node.op == "call_module":
        return isinstance(graph_module.get_submodule(node.target), multiplying())
    return _name(graph_module, node) in _MULTIPLYING


def _name(graph_module: Any, node: Any) -> str:
    """What a call computes, in one word; empty for what is no call."""
    if node.op == "call_module":
        return type(graph_module.get_submodule(node.target)).__name__.lower()
    if node.op == "call_method":
        return str(node.target)
    packet = getattr(node.target, "overloadpacket", None)
    return str(getattr(packet or node.target, "__name__", ""))


class FloatCall(torch.nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """One call of a graph as a module that no quantizer knows: its tensors are its inputs, the rest is held."""

    def __init__(self, op: str, target: Any, args: Any, kwargs: Any) -> None:
        super().__init__()
        self.op, self.target, self.call_args, self.call_kwargs = op, target, args, kwargs

    def forward(self, *inputs: Any) -> Any:
        """What the call gives."""
        args, kwargs = (_fill(part, inputs) for part in (self.call_args, self.call_kwargs))
        if self.op == "call_method":
            return getattr(args[0], self.target)(*args[1:], **kwargs)
        return self.target(*args, **kwargs)


class FloatModule(torch.nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """A module that no quantizer looks into."""

    def __init__(self, part: Any) -> None:
        super().__init__()
        self.part = part

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        return self.part(*args, **kwargs)


OPAQUE = (FloatCall, FloatModule)


class _Place(int):
    """Where an input stands among a call's arguments."""


def _fill(held: Any, inputs: tuple[Any, ...]) -> Any:
    if isinstance(held, _Place):
        return inputs[held]
    if isinstance(held, tuple | list):
        return type(held)(_fill(part, inputs) for part in held)
    if isinstance(held, dict):
        return {key: _fill(part, inputs) for key, part in held.items()}
    if isinstance(held, slice):
        return slice(*(_fill(part, inputs) for part in (held.start, held.stop, held.step)))
    return held


def hide(module: Any, examples: Sequence[tuple[Any, ...]]) -> Any:
    """The module with the calls that stay float as modules that FX does not look into; the module itself where there
    are none, or FX cannot trace it."""
    try:
        traced = module if isinstance(module, torch.fx.GraphModule) else trace(module, examples[0])
    except Untraceable:
        return module
    chosen = find_float_calls(traced, examples)
    for node in chosen:
        if node.op == "call_module":
            _wrap(traced, node)
            continue
        sources = node.all_input_nodes
        args, kwargs = (_hold(part, sources) for part in (node.args, node.kwargs))
        name = free_name(traced, f"{node.name}_float")
        traced.add_submodule(name, FloatCall(node.op, node.target, args, kwargs).train(traced.training))
        node.op, node.target, node.args, node.kwargs = "call_module", name, tuple(sources), {}
    if not chosen:
        return module
    traced.recompile()
    return traced


def _wrap(traced: Any, node: Any) -> None:
    """A module without weights, called in float."""
    part = traced.get_submodule(node.target)
    if any(True for _ in part.parameters()):
        return
    name = free_name(traced, f"{node.target.replace('.', '_')}_float")
    traced.add_submodule(name, FloatModule(part).train(traced.training))
    node.target = name


def _hold(part: Any, sources: list[Any]) -> Any:
    return torch.fx.node.map_aggregate(
        part, lambda item: _Place(sources.index(item)) if isinstance(item, torch.fx.Node) else item
    )
