"""A network as an FX graph: traced as qbench calls it, with the questions that rewrites ask of it."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from qbench.errors import reraise
from qbench.quant import model_call


class Untraceable(Exception):
    """FX cannot follow the network; the text says why."""


UNPACKED = "qbench_unpacked"  # where a graph names its nodes whose parts were taken one by one


def trace(module: Any, inputs: tuple[Any, ...]) -> Any:
    """The GraphModule of a module that is called with ``inputs``: tensors, then any other values, which become part of
    the graph; arguments that are not given keep their defaults.

    Shares the module's layers. Going through the parts of a split, chunk or unbind is written out, as many parts as
    there are for ``inputs``. Control flow that asks for more than that and the shapes of weights raises
    ``Untraceable``.
    """
    import torch

    _require_tensors_first(inputs)
    part_counts: dict[str, int] = {}
    # Tracing runs the user's forward on stand-ins: it fails in its own way.
    with reraise(Untraceable, model_call.reason):
        with _unchecked(module):
            graph = _trace(module, inputs, part_counts)
            while isinstance(graph, _StoppedTrace):
                part_counts[graph.node.name] = _count_parts(module, graph, inputs)
                graph = _trace(module, inputs, part_counts)
        for node in graph.nodes:
            node.type = None  # annotations are text where the user's file postpones them
        traced = torch.fx.GraphModule(module, graph, class_name=type(module).__name__)
        traced.meta[UNPACKED] = tuple(part_counts)
        return traced


def _require_tensors_first(inputs: tuple[Any, ...]) -> None:
    import torch

    from qbench.torch_private import pytree

    tensors = sum(isinstance(value, torch.Tensor) for value in inputs)
    if any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(inputs[tensors:])):
        raise Untraceable("a tensor comes after an argument that is none, or in a list")


class _StoppedTrace(Exception):
    """The forward goes through the parts of a node, and how many there are is not known yet."""

    def __init__(self, graph: Any, node: Any) -> None:
        super().__init__(f"parts of {node.name}")
        self.graph, self.node = graph, node


def _trace(module: Any, inputs: tuple[Any, ...], part_counts: Mapping[str, int]) -> Any:
    """The graph of a module, or ``_StoppedTrace`` where it ends at parts that ``part_counts`` does not know."""
    import torch

    class Tracer(torch.fx.Tracer):  # type: ignore[misc]  # torch is Any to mypy here
        def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
            names = _parameters(root_fn, len(inputs))
            return root_fn, [self.root, *map(self._argument, names, inputs)]

        def _argument(self, name: str, value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return self.create_proxy("placeholder", name, (), {})
            self.create_proxy("placeholder", name, (value,), {})  # callers go on giving it
            return value

        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            of_torch = type(m).__module__.startswith("torch.")
            return of_torch and not isinstance(m, torch.nn.Sequential | torch.fx.GraphModule)

        def iter(self, obj: Any) -> Any:
            if obj.node.target not in _in_parts():
                return super().iter(obj)
            if obj.node.name not in part_counts:
                raise _StoppedTrace(self.graph, obj.node)
            return iter([obj[i] for i in range(part_counts[obj.node.name])])

    try:
        return Tracer(param_shapes_constant=True).trace(module)
    except _StoppedTrace as stopped:
        return stopped


@functools.cache
def _in_parts() -> frozenset[Any]:
    """Functions and methods that give a tuple of parts of a tensor."""
    import torch

    names = ("split", "split_with_sizes", "chunk", "unbind", "tensor_split")
    return frozenset([*names, *(getattr(torch, name) for name in names)])


def _count_parts(module: Any, stopped: _StoppedTrace, inputs: tuple[Any, ...]) -> int:
    """How many parts the last node of an unfinished graph gives on the inputs."""
    import torch

    graph, copies = torch.fx.Graph(), dict[Any, Any]()
    for node in stopped.graph.nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(copies[stopped.node])
    with torch.no_grad():
        return len(torch.fx.Interpreter(torch.fx.GraphModule(module, graph)).run(*inputs))


@contextmanager
def _unchecked(module: Any) -> Iterator[None]:
    """BatchNorm's own check of its input's axes asks a stand-in for a decision, in classes that FX goes into."""
    from torch import nn

    norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._NormBase)]
    for part in norms:
        part._check_input_dim = lambda _: None
    try:
        yield
    finally:
        for part in norms:
            del part._check_input_dim


def _parameters(function: Any, inputs: int) -> list[str]:
    """The names of the first arguments after self; made up where they are ``*args``."""
    names = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            break
        names.append(parameter.name)
    names += [f"input_{i}" for i in range(len(names), inputs)]
    return names[:inputs]


def layer(graph: Any, node: Any) -> Any:
    """The module that a node calls, None where it calls none (or is no node)."""
    return graph.get_submodule(node.target) if getattr(node, "op", "") == "call_module" else None


def own_tensor(graph: Any, node: Any) -> Any:
    """The network's tensor that a node reads, None where it reads none."""
    if getattr(node, "op", "") != "get_attr":
        return None
    return functools.reduce(getattr, node.target.split("."), graph)


def calls_of(graph: Any) -> dict[int, list[Any]]:
    """The nodes that call each module, by the module's identity: a module may have several names."""
    calls: dict[int, list[Any]] = {}
    for node in graph.graph.nodes:
        if node.op == "call_module":
            calls.setdefault(id(layer(graph, node)), []).append(node)
    return calls


def only_user(node: Any) -> Any:
    """The node that alone uses another; None where there are several or none."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def single_input(node: Any) -> Any:
    """The node that is the one argument of another's call; None where it has more or none."""
    import torch

    alone = len(node.args) == 1 and not node.kwargs
    return node.args[0] if alone and isinstance(node.args[0], torch.fx.Node) else None


def free_name(graph: Any, wish: str) -> str:
    """``wish``, or with a number where the network has such a part already."""
    for number in itertools.count():
        name = f"{wish}_{number}" if number else wish
        parent, _, last = name.rpartition(".")
        if not hasattr(graph.get_submodule(parent), last):
            return name
    raise AssertionError("unreachable")  # pragma: no cover


def remove(graph: Any, node: Any) -> None:
    """Takes a node out; those who used it use its first input."""
    node.replace_all_uses_with(node.args[0] if node.args else next(iter(node.kwargs.values())))
    graph.graph.erase_node(node)


def finished(graph: Any) -> Any:
    """The GraphModule with its code up to date and without the layers that nothing calls any more."""
    graph.graph.lint()
    graph.delete_all_unused_submodules()
    graph.recompile()
    return graph


def fix_facts_of_weights(traced: Any) -> None:
    """Puts device and type of a weight into the graph as they are: an int8 layer has none to ask."""
    import torch

    for node in list(traced.graph.nodes):
        asks = node.op == "call_function" and node.target is getattr and node.args[1] in ("device", "dtype")
        if not asks or node.args[0].op != "get_attr":
            continue
        module, _, name = node.args[0].target.rpartition(".")
        fact = getattr(getattr(traced.get_submodule(module), name), node.args[1])
        for user in list(node.users):
            user.args, user.kwargs = torch.fx.node.map_arg(
                (user.args, user.kwargs), lambda used, node=node, fact=fact: fact if used is node else used
            )
        traced.graph.erase_node(node)
    traced.graph.eliminate_dead_code()
    traced.recompile()
