"""Where in a network eager mode can quantize: the whole where FX has its graph, else the largest parts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from qbench.errors import BuildError, out_of_memory, reraise
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
    """The arguments of each module's first call, by identity; None for one with keywords that are not the input, and
    for one that is told how many examples there are, which a graph would hold fast."""

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
    _require_same(module, example, expected)
    return Split(module=module, regions=tuple(regions), unused=tuple(unused), why=why)


def _require_same(module: Any, example: tuple[Any, ...], expected: Any) -> None:
    """Raises ``BuildError`` where the network with its regions in place does not do what it did."""
    import torch

    stopped = reraise(  # what the user's forward asks of its modules may not be there on a graph
        BuildError,
        lambda error: (
            f"the network does not run with its parts as graphs ({model_call.reason(error)}), which eager mode puts in "
            "their place"
        ),
    )
    with stopped, torch.inference_mode():
        actual = model_call.first(module(*example))
    if not graph.same(actual, expected):
        raise BuildError("the network's parts, each as a graph, are another network than the whole")


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
        _forget_counted(calls, module, example)
        for batch in batches() if batches else ():
            if heavy <= set(calls.inputs):
                break
            module(*batch)
    return calls


def _forget_counted(calls: _Calls, module: Any, example: tuple[Any, ...]) -> None:
    """Takes back the arguments of modules whose numbers are others for two examples than for one."""
    import torch

    twice = _Calls()

    def note(part: Any, args: tuple[Any, ...]) -> None:
        twice.inputs.setdefault(id(part), args)

    hooks = [part.register_forward_pre_hook(note) for part in module.modules() if calls.inputs.get(id(part))]
    with model_call.hooked(hooks):
        try:
            module(*(torch.cat([tensor, tensor]) for tensor in example))
        except Exception as error:  # it takes one example alone
            if out_of_memory(error):
                raise
            return
    for part, args in twice.inputs.items():
        if _list_numbers(args) != _list_numbers(calls.inputs[part]):
            calls.inputs[part] = None


def _list_numbers(value: Any) -> list[Any]:
    """What of some arguments is no tensor, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        return []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [number for part in value for number in _list_numbers(part)]
    return [value]


def _replace(module: Any, calls: _Calls, regions: list[Region], replaced: dict[int, Any]) -> None:
    """Puts regions in the place of a module's children, each the largest that FX can trace."""
    for name, child in list(module._modules.items()):  # named_children() leaves out a part's second name
        if child is None:
            continue
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
            _take_over_attributes(child, region.traced)
            replaced[id(child)] = module._modules[name] = region.traced


def _take_over_attributes(child: Any, traced: Any) -> None:
    """Gives a graph what was written onto the module that it replaces: a forward may read there where a part takes its
    input from, or how large it is; of weights the device, type and shape, which an int8 layer does not tell."""
    facts = {
        name: SimpleNamespace(device=parameter.device, dtype=parameter.dtype, shape=parameter.shape)
        for name, parameter in child.named_parameters(recurse=False)
    }
    for name, value in {**vars(child), **facts}.items():
        if not name.startswith("_") and not hasattr(traced, name):
            setattr(traced, name, value)


def copy_network(module: Any) -> Any:
    """A copy of a network with regions in place, and what stands on them: a GraphModule's own copy leaves it behind."""
    import torch

    copied = copy.deepcopy(module)
    for part, twin in zip(module.modules(), copied.modules(), strict=True):
        if isinstance(part, torch.fx.GraphModule):
            _take_over_attributes(part, twin)
    return copied


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
