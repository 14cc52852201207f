"""Where in a network eager mode can quantize: the whole where FX has its graph, else the largest parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from qbench.errors import BuildError
from qbench.quant import model_call
from qbench.quant.canonical.graph import Untraceable
from qbench.quant.flow import Batches
from qbench.quant.pytorch.eager import graph, operator_support

UNUSED = "it did not run on any calibration example"
NOT_CALLED = "the network does not call it"
NO_GRAPH = "FX has no graph of the part around it, and it is not called with one tensor alone"


@dataclass(frozen=True, kw_only=True)
class Region:
    """A GraphModule that takes the place of a module, with inputs that the module really got."""

    traced: Any
    inputs: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Split:
    """A network with its regions in place; ``unused``: names of layers that never ran; ``why``: why FX has no graph of
    the whole, None where it has."""

    module: Any
    regions: tuple[Region, ...]
    unused: tuple[str, ...] = ()
    why: str | None = None


@dataclass
class _Calls:
    """The arguments of each module's first call, by identity; None for one with keywords that are not the input."""

    inputs: dict[int, tuple[Any, ...] | None] = field(default_factory=dict)


def split(module: Any, example: tuple[Any, ...], batches: Batches | None) -> Split:
    """The regions of a module (in eval mode; it is changed) found on a batch of 1.

    Where FX cannot trace the whole, ``batches`` are run until every layer has been seen, since control flow may keep
    some from running on the example. Raises ``BuildError`` where the parts do not do what the whole did.
    """
    try:
        traced = graph.trace(module, example)
        return Split(module=traced, regions=(Region(traced=traced, inputs=example),))
    except Untraceable as error:
        why = str(error)
    names = {id(part): name for name, part in reversed(list(module.named_modules()))}
    expected = model_call.of_one_example(module, example)
    calls = _record(module, example, batches)
    unused = [
        names[id(part)]
        for part in module.modules()
        if type(part) in operator_support.heavy() and id(part) not in calls.inputs
    ]
    if type(module) in operator_support.heavy() or not any(True for _ in module.children()):
        return Split(module=module, regions=(), why=why)
    regions: list[Region] = []
    _replace(module, calls, regions, {})
    if not graph.same(model_call.of_one_example(module, example), expected):
        raise BuildError("the network's parts, each as a graph, are another network than the whole; use flow fx")
    return Split(module=module, regions=tuple(regions), unused=tuple(unused), why=why)


def _record(module: Any, example: tuple[Any, ...], batches: Batches | None) -> _Calls:
    import torch

    calls = _Calls()

    def note(part: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if id(part) not in calls.inputs:
            arguments = (*args, *keywords.values()) if list(keywords) in ([], ["input"]) else None
            calls.inputs[id(part)] = arguments

    heavy = {id(part) for part in module.modules() if type(part) in operator_support.heavy()}
    hooks = [part.register_forward_pre_hook(note, with_kwargs=True) for part in module.modules()]
    with model_call.hooked(hooks), torch.no_grad():
        module(*example)
        for batch in batches() if batches else ():
            if heavy <= set(calls.inputs):
                break
            module(*batch)
    return calls


def _replace(module: Any, calls: _Calls, regions: list[Region], replaced: dict[int, Any]) -> None:
    """Puts regions in the place of a module's children, each the largest that FX can trace."""
    for name, child in list(module.named_children()):
        if id(child) in replaced:
            module._modules[name] = replaced[id(child)]
        elif (
            any(type(part) in operator_support.heavy() for part in child.modules())
            and type(child) not in operator_support.float_only()
        ):
            region = _region(child, calls.inputs.get(id(child)))
            if region is None:
                _replace(child, calls, regions, replaced)
                continue
            regions.append(region)
            replaced[id(child)] = module._modules[name] = region.traced


def _region(child: Any, inputs: tuple[Any, ...] | None) -> Region | None:
    import torch

    if inputs is None:
        return None
    if type(child) in operator_support.heavy():
        return Region(traced=graph.alone(child), inputs=inputs)
    try:
        traced = graph.trace(child, inputs)
    except Untraceable:
        return None
    return Region(traced=traced, inputs=tuple(tensor for tensor in inputs if isinstance(tensor, torch.Tensor)))


def stubs(module: Any) -> Iterator[tuple[str, Any]]:
    """The stubs that a network brings itself, with their names."""
    from qbench.quant.pytorch import torch_ao

    kinds_of_stub = (torch_ao.QuantStub, torch_ao.DeQuantStub)
    return ((name, part) for name, part in module.named_modules() if isinstance(part, kinds_of_stub))
