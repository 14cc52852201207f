"""Operations that quantizers know, written in a way that they do not: rewritten as they expect them."""

from __future__ import annotations

import functools
import operator
from typing import Any

from qbench.quant.canonical import graph as graphs
from qbench.quant.canonical.rewrite import Rewrite


def replace_activations(graph: Any) -> list[Rewrite]:
    """Makes relu, relu6, hardtanh, clamp by numbers, sigmoid, tanh and hardsigmoid, as functions or methods, a layer.

    Quantizers fuse those that clip into their producer and read the range that they clip to; a recipe can name the
    others, whose int8 range is fixed. The layer is named after the layer before it. An in-place call whose input others
    use too stays.
    """
    from torch import fx

    rewrites = []
    for node in list(graph.graph.nodes):
        new = _activation(node)
        source = node.args[0] if node.args else None
        if new is None or not isinstance(source, fx.Node) or (_in_place(node) and len(source.users) > 1):
            continue
        before = f"{source.target}_" if source.op == "call_module" else ""
        name = graphs.free_name(graph, f"{before}{type(new).__name__.lower()}")
        graph.add_submodule(name, new.train(graph.training))
        call = _written(node)
        node.op, node.target, node.args, node.kwargs = "call_module", name, (source,), {}
        rewrites.append(Rewrite(what=f"{call} made a {type(new).__name__} layer", name=name))
    return rewrites


def _activation(node: Any) -> Any:
    """The layer that does what a call does, None where there is none."""
    from torch import nn

    name = _known().get(node.target) if node.op in ("call_function", "call_method") else None
    if name is None:
        return None
    simple = {"relu": nn.ReLU, "relu6": nn.ReLU6, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh, "hardsigmoid": nn.Hardsigmoid}
    if name in simple:
        return simple[name]()
    names = ("min_val", "max_val") if name == "hardtanh" else ("min", "max")
    default: dict[str, Any] = {"min_val": -1.0, "max_val": 1.0}
    arguments = default | dict(zip(names, node.args[1:3], strict=False)) | node.kwargs
    low, high = arguments.get(names[0]), arguments.get(names[1])
    if low == 0 and high is None:
        return nn.ReLU()
    if not isinstance(low, int | float) or not isinstance(high, int | float) or not low < high:
        return None
    return nn.ReLU6() if (low, high) == (0, 6) else nn.Hardtanh(float(low), float(high))


@functools.cache
def _known() -> dict[Any, str]:
    """Functions and names of methods -> what they do."""
    import torch
    from torch.nn import functional

    return {
        functional.relu: "relu", torch.relu: "relu", torch.relu_: "relu", functional.relu_: "relu",
        "relu": "relu", "relu_": "relu",
        functional.relu6: "relu6",
        functional.hardtanh: "hardtanh", functional.hardtanh_: "hardtanh",
        torch.clamp: "clamp", torch.clamp_: "clamp", torch.clip: "clamp", torch.clip_: "clamp",
        "clamp": "clamp", "clamp_": "clamp", "clip": "clamp", "clip_": "clamp",
        torch.sigmoid: "sigmoid", torch.sigmoid_: "sigmoid", functional.sigmoid: "sigmoid",
        "sigmoid": "sigmoid", "sigmoid_": "sigmoid",
        torch.tanh: "tanh", torch.tanh_: "tanh", functional.tanh: "tanh", "tanh": "tanh", "tanh_": "tanh",
        functional.hardsigmoid: "hardsigmoid",
    }  # fmt: skip


def _in_place(node: Any) -> bool:
    """torch.nn.functional hands ``inplace`` on to FX by name, however it was given."""
    return _written(node).endswith("_") or bool(node.kwargs.get("inplace"))


def _written(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target))


def replace_arithmetic(graph: Any) -> list[Rewrite]:
    """Makes additions, multiplications and concatenations the function that quantizers match.

    An in-place one whose target others use too stays (FX itself makes ``x += y`` a plain addition).
    """
    from torch import fx

    rewrites = []
    for node in list(graph.graph.nodes):
        function = _arithmetic().get((node.op, node.target))
        if function is None or node.kwargs or len(node.args) != 2:
            continue
        source, call = node.args[0], _written(node)
        if call.endswith("_") and (not isinstance(source, fx.Node) or len(source.users) > 1):
            continue
        method = node.op == "call_method"
        node.op, node.target = "call_function", function
        change = f"{'method ' if method else ''}{call} written as {function.__name__}"
        rewrites.append(Rewrite(what=change, name=node.name))
    return rewrites


@functools.cache
def _arithmetic() -> dict[tuple[str, Any], Any]:
    import torch

    spelled: dict[tuple[str, Any], Any] = {
        ("call_function", torch.concat): torch.cat,
        ("call_function", torch.concatenate): torch.cat,
    }
    for name in ("add", "add_"):
        spelled["call_method", name] = operator.add
    for name in ("mul", "mul_"):
        spelled["call_method", name] = operator.mul
    return spelled
