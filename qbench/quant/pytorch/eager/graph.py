"""A module as an FX graph whose layers are modules, proven equal to it, and what flows through that graph."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qbench.errors import out_of_memory
from qbench.quant import model_call
from qbench.quant.canonical import functional_layers, functional_ops
from qbench.quant.canonical import graph as graphs
from qbench.quant.canonical.graph import Untraceable, free_name
from qbench.quant.pytorch.eager import operator_support

# The graph runs the same operators in the same order; only a fused kernel of torch's may round in another way.
SAME = 1e-5


@dataclass(frozen=True, kw_only=True)
class Value:
    """What a node gave on the example: ``floats`` for one float32 tensor, of that ``shape``; ``several`` for a tuple or
    list of tensors."""

    floats: bool = False
    several: bool = False
    shape: tuple[int, ...] = ()


def trace(module: Any, inputs: tuple[Any, ...]) -> Any:
    """A GraphModule in eval mode that shares the module's layers and does on ``inputs`` what the module does; its
    functions are layers where there are such layers.

    Arguments that are no tensor become part of the graph. Raises ``Untraceable``.
    """
    import torch

    traced = graphs.trace(module, inputs)
    tensors = tuple(value for value in inputs if isinstance(value, torch.Tensor))
    try:
        _refuse_shared_changes(traced)
        _to_modules(traced)
        with torch.no_grad():
            equal = same(traced(*tensors), module(*inputs))
    except Untraceable:
        raise
    except Exception as error:  # the graph of a user's forward can raise anything
        if out_of_memory(error):
            raise
        raise Untraceable(model_call.reason(error)) from error
    if not equal:
        raise Untraceable("its graph gives other outputs than the module")
    return traced


def _refuse_shared_changes(traced: Any) -> None:
    """Raises where a tensor that is changed in place is read again later: an int8 copy of it would not change."""
    for node in traced.graph.nodes:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        changes = node.op in ("call_method", "call_function") and name.endswith("_") and not name.endswith("__")
        if node.op == "call_module":
            changes = bool(getattr(traced.get_submodule(node.target), "inplace", False))
        source = node.args[0] if changes and node.args else None
        if any(user > node for user in getattr(source, "users", ()) if user is not node):
            raise Untraceable(f"{node.name} changes a tensor in place that is read again later")


def alone(layer: Any) -> Any:
    """A GraphModule that calls one layer, which it holds as ``module``; its argument has torch's name, ``input``."""
    import torch

    root = torch.nn.Module()
    root.add_module("module", layer)
    graph = torch.fx.Graph()
    graph.output(graph.call_module("module", (graph.placeholder("input"),)))
    return torch.fx.GraphModule(root, graph).train(layer.training)


def values(traced: Any, inputs: tuple[Any, ...]) -> tuple[Value, ...]:
    """What each node of a graph gives for these inputs, in the graph's order."""
    import torch

    recorded: list[Value] = []

    class Recorder(torch.fx.Interpreter):  # type: ignore[misc]  # torch is Any to mypy here
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            recorded.append(_value(result))
            return result

    with torch.no_grad():
        Recorder(traced).run(*inputs)
    return tuple(recorded)


def _value(result: Any) -> Value:
    import torch

    if isinstance(result, torch.Tensor):
        return Value(floats=result.dtype == torch.float32, shape=tuple(result.shape))
    several = isinstance(result, tuple | list) and any(isinstance(part, torch.Tensor) for part in result)
    return Value(several=several and not isinstance(result, torch.Size))


def same(actual: Any, expected: Any) -> bool:
    """Equal tensors within ``SAME`` of the largest value, in equal nests of tuples, lists and dicts."""
    import torch

    if isinstance(expected, torch.Tensor):
        if not isinstance(actual, torch.Tensor) or actual.shape != expected.shape or actual.dtype != expected.dtype:
            return False
        if not expected.is_floating_point():
            return bool(torch.equal(actual, expected))
        finite = expected[torch.isfinite(expected)]
        largest = float(finite.abs().max()) if finite.numel() else 0.0
        return bool(torch.allclose(actual, expected, rtol=0, atol=SAME * max(largest, 1e-12), equal_nan=True))
    if isinstance(expected, dict):
        return (
            isinstance(actual, dict)
            and list(actual) == list(expected)
            and same([*actual.values()], [*expected.values()])
        )
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        return isinstance(actual, Sequence) and len(actual) == len(expected) and all(map(same, actual, expected))
    return bool(actual == expected)


def _to_modules(traced: Any) -> None:
    """Rewrites convolutions and linear functions with the network's own weights, activations and dropout of a
    GraphModule into modules called with their input by position, in place.

    A call whose arguments do not say the same as the module is left as it is.
    """
    graphs.fix_facts_of_weights(traced)
    functional_layers.replace_layers(traced)
    functional_ops.replace_activations(traced)
    for node in list(traced.graph.nodes):
        layer = _activation(node) if node.op in ("call_function", "call_method") else None
        if layer is None:
            continue
        name = free_name(traced, f"{node.name}_module")
        traced.add_submodule(name, layer.train(traced.training))
        node.op, node.target, node.args, node.kwargs = "call_module", name, node.args[:1], {}
    for node in traced.graph.nodes:
        if node.op == "call_module" and not node.args and list(node.kwargs) == ["input"]:
            node.args, node.kwargs = (node.kwargs["input"],), {}  # int8 layers do not know the keyword
    traced.delete_all_unused_submodules()
    traced.recompile()


def _activation(node: Any) -> Any | None:
    """The module that does what a call of an activation or of dropout does; None for any other."""
    from torch import nn
    from torch.nn import functional

    arguments = _arguments(node)
    if arguments is None:
        return None
    if node.target is functional.dropout:  # traced in eval mode; without ``training`` it is never turned off
        return nn.Dropout(arguments.get("p", 0.5)) if arguments.get("training", True) is False else None
    arguments.pop("inplace", None)
    kind, names = operator_support.activations().get(node.target, (None, ()))
    return kind(**arguments) if kind is not None and arguments.keys() <= set(names) else None


def _arguments(node: Any) -> dict[str, Any] | None:
    """The call's arguments by name, without the first (the input) and without those that say nothing; None where
    they cannot be told."""
    if len(node.args) == 1 and not node.kwargs:
        return {}
    try:
        bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):  # a method's name, or a builtin without a signature
        return None
    return dict(list(bound.arguments.items())[1:]) if node.args else None
