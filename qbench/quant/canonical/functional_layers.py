"""Functions that are called with the network's own weights (``F.conv2d(x, self.w)``), made layers."""

from __future__ import annotations

from typing import Any

from qbench.quant.canonical import graph as graphs
from qbench.quant.canonical import layer_signature, padding, replace_subclasses
from qbench.quant.canonical.rewrite import Rewrite


def replace_layers(graph: Any, trained: Any = None) -> list[Rewrite]:
    """Makes each convolution and linear function whose weight and bias are the network's own tensors a layer with the
    same parameters, named after the weight.

    Quantizers fold BatchNorm into layers, know which of their settings are numbers and which are lists, and can be told
    to leave them. One whose padding is not the same on both sides stays, and, of a network that is to be
    ``trained``, what the forward of a subclass of a layer calls: it may do something else in train mode.
    """
    rewrites = []
    for node in list(graph.graph.nodes):
        arguments, layer = _arguments(node), _layer(graph, node)
        if layer is None or (
            trained is not None and isinstance(_owner(trained, arguments["weight"]), layer_signature.supported_kinds())
        ):
            continue
        kind = type(layer).__name__
        weight = str(arguments["weight"].target).replace(".", "_")
        name = graphs.free_name(graph, f"{weight}_{kind.lower()}")
        graph.add_submodule(name, layer)
        node.op, node.target, node.args, node.kwargs = "call_module", name, (arguments["input"],), {}
        rewrites.append(Rewrite(what=f"function with its own weights made a {kind} layer", name=name))
    return rewrites


def _arguments(node: Any) -> dict[str, Any]:
    """The arguments of a call by name; empty where it is no such function."""
    signature = layer_signature.find_function(node.target)
    return {} if signature is None else dict(zip(signature[1], node.args, strict=False)) | node.kwargs


def _layer(graph: Any, node: Any) -> Any:
    """The layer that does what a call does; None where there is none."""
    from torch import fx

    arguments = _arguments(node)
    if not isinstance(arguments.get("input"), fx.Node):
        return None
    weight, bias = (graphs.own_tensor(graph, arguments.get(name)) for name in ("weight", "bias"))
    constant = weight is not None and (bias is not None or arguments.get("bias") is None)
    numbers = {name: value for name, value in arguments.items() if name not in ("input", "weight", "bias")}
    if not constant or not weight.is_floating_point() or _holds_node(tuple(numbers.values())):
        return None
    kind, _ = layer_signature.find_function(node.target) or (None, ())
    try:
        form = layer_signature.of_arguments(kind, {**numbers, "weight": weight, "bias": bias}, [])
    except layer_signature.NotPlain:
        return None
    return replace_subclasses.build_layer(form, training=graph.training) if padding.symmetric(form.pairs) else None


def _owner(module: Any, weight: Any) -> Any:
    """The part of a module that holds the tensor which a node of its graph reads."""
    return module.get_submodule(weight.target.rpartition(".")[0])


def _holds_node(values: Any) -> bool:
    """Whether a setting is decided as the network runs."""
    from torch import fx

    from qbench.torch_private import pytree

    return any(isinstance(leaf, fx.Node) for leaf in pytree.tree_leaves(values))
