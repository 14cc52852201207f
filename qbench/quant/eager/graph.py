"""A module as an FX graph whose layers are modules, proven equal to it, and what flows through that graph."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qbench.quant import forward
from qbench.quant.eager import functional

# The graph runs the same operators in the same order; only a fused kernel of torch's may round in another way.
SAME = 1e-5


class NotTraceable(Exception):  # it says what it is; never leaves this package
    """Why FX gives no graph that is equal to the module; one line."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """What a node gave on the example: ``floats`` for one float32 tensor, of that ``shape``; ``several`` for a tuple or
    list of tensors."""

    floats: bool = False
    several: bool = False
    shape: tuple[int, ...] = ()


def trace(module: Any, inputs: tuple[Any, ...], leaves: tuple[type, ...] = ()) -> Any:
    """A GraphModule in eval mode that shares the module's layers and does on ``inputs`` what the module does.

    Arguments that are no tensor become part of the graph; modules of the types ``leaves`` stay whole, as torch's own
    layers do. Raises ``NotTraceable``.
    """
    import torch

    fixed = _fixed_arguments(module, inputs)
    tensors = tuple(value for value in inputs if isinstance(value, torch.Tensor))
    if not all(isinstance(value, torch.Tensor) for value in inputs[: len(tensors)]):
        raise NotTraceable("a tensor comes after an argument that is none")
    try:
        graph = _tracer(leaves).trace(module, concrete_args=fixed or None)
        traced = torch.fx.GraphModule(module, graph)
        _refuse_shared_changes(traced)
        _drop_checks(traced)
        functional.to_modules(traced)
        with torch.no_grad():
            equal = same(traced(*tensors), module(*inputs))
    except NotTraceable:
        raise
    except Exception as error:  # the user's forward meets stand-ins for tensors, and can raise anything
        if forward.out_of_memory(error):
            raise
        raise NotTraceable(forward.reason(error)) from error
    if not equal:
        raise NotTraceable("its graph gives other outputs than the module")
    return traced


def _tracer(leaves: tuple[type, ...]) -> Any:
    import torch

    class Tracer(torch.fx.Tracer):  # type: ignore[misc]  # torch is Any to mypy here
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return isinstance(m, leaves) or bool(super().is_leaf_module(m, module_qualified_name))

    return Tracer()


def _fixed_arguments(module: Any, inputs: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments of forward that are no tensor, by name: those given, and the defaults of those not given."""
    import torch

    try:
        bound = inspect.signature(module.forward).bind(*inputs)
    except TypeError as error:
        raise NotTraceable(f"forward does not take these arguments: {error}") from error
    bound.apply_defaults()
    kinds = {name: one.kind for name, one in bound.signature.parameters.items()}
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(kind in several and bound.arguments[name] for name, kind in kinds.items()):
        raise NotTraceable("forward takes *args or **kwargs")
    return {
        name: value
        for name, value in bound.arguments.items()
        if not isinstance(value, torch.Tensor) and kinds[name] not in several
    }


def _refuse_shared_changes(traced: Any) -> None:
    """Raises where a tensor that is changed in place is read again later: an int8 copy of it would not change."""
    for node in traced.graph.nodes:
        named = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        changes = node.op in ("call_method", "call_function") and named.endswith("_") and not named.endswith("__")
        if node.op == "call_module":
            changes = bool(getattr(traced.get_submodule(node.target), "inplace", False))
        read = node.args[0] if changes and node.args else None
        if any(user > node for user in getattr(read, "users", ()) if user is not node):
            raise NotTraceable(f"{node.name} changes a tensor in place that is read again later")


def _drop_checks(traced: Any) -> None:
    """FX checks in the graph that a fixed argument is what it was: the region that calls it is fixed as well."""
    import torch

    for node in list(traced.graph.nodes):
        if node.op == "call_function" and not node.users and (
            node.target is torch._assert or getattr(node.target, "__name__", "") == "_assert_is_none"
        ):  # fmt: skip
            compared = [one for one in node.all_input_nodes if one.op == "call_function"]
            traced.graph.erase_node(node)
            for one in compared:
                if not one.users:
                    traced.graph.erase_node(one)
    traced.recompile()


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

    found: list[Value] = []

    class Watch(torch.fx.Interpreter):  # type: ignore[misc]  # torch is Any to mypy here
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            found.append(_value(result))
            return result

    with torch.no_grad():
        Watch(traced).run(*inputs)
    return tuple(found)


def _value(result: Any) -> Value:
    import torch

    if isinstance(result, torch.Tensor):
        return Value(floats=result.dtype == torch.float32, shape=tuple(result.shape))
    several = isinstance(result, tuple | list) and any(isinstance(one, torch.Tensor) for one in result)
    return Value(several=several and not isinstance(result, torch.Size))


def same(found: Any, wanted: Any) -> bool:
    """Equal tensors within ``SAME`` of the largest value, in equal nests of tuples, lists and dicts."""
    import torch

    if isinstance(wanted, torch.Tensor):
        if not isinstance(found, torch.Tensor) or found.shape != wanted.shape or found.dtype != wanted.dtype:
            return False
        if not wanted.is_floating_point():
            return bool(torch.equal(found, wanted))
        finite = wanted[torch.isfinite(wanted)]
        largest = float(finite.abs().max()) if finite.numel() else 0.0
        return bool(torch.allclose(found, wanted, rtol=0, atol=SAME * max(largest, 1e-12), equal_nan=True))
    if isinstance(wanted, dict):
        return isinstance(found, dict) and list(found) == list(wanted) and same([*found.values()], [*wanted.values()])
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        return isinstance(found, Sequence) and len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted)
