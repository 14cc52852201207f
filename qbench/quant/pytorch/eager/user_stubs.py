"""Networks whose author placed the stubs: they stay where they are, qbench fuses, configures and checks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from qbench.errors import BuildError, reraise
from qbench.quant import model_call
from qbench.quant.canonical.graph import Untraceable
from qbench.quant.pytorch.eager import fusion_patterns, graph, insert_stubs, operator_support, regions

_WAY_OUT = (
    "put QuantStub and DeQuantStub around what has an int8 class and FloatFunctional for + and cat, or remove all "
    "stubs: qbench then places its own"
)


def ready(
    module: Any,
    example: tuple[Any, ...],
    qconfig: insert_stubs.Qconfig,
    trial: insert_stubs.Qconfig,
    float_layers: Mapping[str, str],
    *,
    training: bool,
) -> Any:
    """A module with stubs, fused and configured for torch's prepare; it is changed.

    ``float_layers``: name -> why it stays float. ``trial`` is a static quantization, cheap to observe. Raises
    ``BuildError`` where the int8 network would not run.
    """
    _require_both(module)
    names = _heavy_below(module, float_layers)
    groups = fused_names(module, example, names, training=training)
    first = copy.deepcopy(module)
    _fuse(first, fused_names(module, example, frozenset(), training=False), training=False)
    inside = _inside(first, example, trial, names)
    for name in sorted(inside):
        _as_island(module, name)
    module.train(training)
    _fuse(module, groups, training=training)
    _configure(module, qconfig, frozenset(names))
    return module


def _require_both(module: Any) -> None:
    present = {type(part).__name__ for _, part in regions.stubs(module)}
    missing = {"QuantStub", "DeQuantStub"} - present
    if missing:
        raise BuildError(f"this network has a {present.pop()} but no {missing.pop()}: {_WAY_OUT}")


def _heavy_below(module: Any, float_layers: Mapping[str, str]) -> frozenset[str]:
    from qbench.quant import layer_selection

    return frozenset(
        name
        for name, part in module.named_modules()
        if type(part) in operator_support.heavy() and layer_selection.below(name, dict(float_layers))
    )


def fused_names(
    module: Any, example: tuple[Any, ...], float_layers: frozenset[str], *, training: bool
) -> tuple[tuple[str, ...], ...]:
    """Names of layers that are fused, from a graph in which stubs are layers; nothing where FX has no graph."""
    whole = copy.deepcopy(module)  # tracing puts modules in the place of functions
    try:
        traced = graph.trace(whole, example)
    except Untraceable:
        return ()
    names = {id(part): name for name, part in whole.named_modules()}
    out = {id(whole.get_submodule(name)) for name in float_layers}

    def free(node: Any) -> bool:
        part = traced.get_submodule(node.target) if node.op == "call_module" else None
        return id(part) in names and id(part) not in out

    nodes = list(traced.graph.nodes)
    chains = fusion_patterns.find(traced, graph.values(traced, example), training=training, clip=None, free=free)
    layers = [[nodes[i] for i in fused.nodes] for fused in chains]
    return tuple(
        tuple(names[id(traced.get_submodule(node.target))] for node in chain)
        for chain in layers
        if all(node.op == "call_module" for node in chain)
    )


def _fuse(module: Any, chains: tuple[tuple[str, ...], ...], *, training: bool) -> None:
    from qbench.quant.pytorch import torch_ao

    for names in chains:
        (torch_ao.fuse_modules_qat if training else torch_ao.fuse_modules)(module, list(names), inplace=True)


def _inside(first: Any, example: tuple[Any, ...], trial: insert_stubs.Qconfig, names: frozenset[str]) -> set[str]:
    """Converts on one example and runs; of the layers that are to stay float, those that the author put inside the int8
    region."""
    import torch

    from qbench.quant.pytorch import torch_ao

    _configure(first, trial, frozenset())
    inside: set[str] = set()
    # torch's refusals, and the user's forward on int8 tensors.
    with (
        reraise(
            BuildError,
            lambda error: f"the stubs that the network brings do not fit: {model_call.reason(error)}; {_WAY_OUT}",
        ),
        torch_ao.known_warnings(),
        torch.no_grad(),
    ):
        torch_ao.prepare(first, inplace=True, prepare_custom_config_dict={})
        first(*example)
        torch_ao.convert(first, inplace=True)
        for name in names:
            first.get_submodule(name).register_forward_pre_hook(_note_int8(inside, name))
        first(*example)
    return inside


def _note_int8(inside: set[str], name: str) -> Callable[[Any, tuple[Any, ...]], None]:
    def note(_: Any, args: tuple[Any, ...]) -> None:
        if args[0].is_quantized:
            inside.add(name)

    return note


def _as_island(module: Any, name: str) -> None:
    """Float inside an int8 region: dequantized before the layer, quantized again behind it."""
    import torch

    from qbench.quant.pytorch import torch_ao

    layer = module.get_submodule(name)
    module.set_submodule(name, torch.nn.Sequential(torch_ao.DeQuantStub(), layer, torch_ao.QuantStub()))
    layer.qconfig = None


def _configure(module: Any, qconfig: insert_stubs.Qconfig, float_layers: frozenset[str]) -> None:
    """Each part's quantization by its kind; None where the author set ``qconfig = None``, the way to say float."""
    float_below = {
        id(part)
        for above in module.modules()
        if getattr(above, "qconfig", ...) is None or type(above) in operator_support.float_only()
        for part in above.modules()
    } | {
        id(module.get_submodule(name))
        for name in float_layers
        if type(module.get_submodule(name)) in operator_support.heavy()
    }
    for part in module.modules():
        part.qconfig = None if id(part) in float_below else qconfig(part, None)
    for part in module.modules():  # a fused layer is quantized as its first part, and its parts with it
        if part.qconfig is not None and type(part).__module__.startswith("torch.ao.nn.intrinsic"):
            configuration = qconfig(next(part.children(), part), None)
            for inner in part.modules():
                inner.qconfig = configuration
