"""Whether a network of torch's is quantized already: as fp32 it would make every comparison worthless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from qbench.errors import first_names, out_of_memory

_SHOWN = 3  # names in a message
_ATEN = ("quantize_per", "_make_per", "dequantize", "quantized_", "_int_mm", "_weight_int8pack", "_weight_int4pack")
_NAMESPACES = ("quantized", "quantized_decomposed", "onednn", "torchao")
_PACKAGES = (
    *("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.ao.nn.quantizable", "torch.ao.nn.qat"),
    *("torch.ao.nn.intrinsic.qat", "torch.ao.quantization.fake_quantize", "torch.ao.nn.sparse.quantized", "torchao"),
)


def why_not_float(module: Any, example: tuple[Any, ...] = ()) -> str | None:
    """``already quantized (quantized::conv2d and 12 more)``; None for a float network. With an ``example`` a Python
    module is called with it, too: what its forward quantizes by a function stands in no layer."""
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        names = _list_operators(module.inlined_graph.nodes())
    else:
        names = _list_parts(module)
    unique = list(dict.fromkeys(names))
    if not unique and example and not isinstance(module, torch.jit.ScriptModule):
        unique = list(dict.fromkeys(_list_calls(module, example)))
    return f"already quantized ({first_names(unique, _SHOWN)})" if unique else None


def describe_own_qconfig(module: Any) -> str | None:
    """Which layers have a ``qconfig`` of their author's, which one recipe alone reads; None where none has."""
    layers = [
        name or "the network"
        for name, part in module.named_modules()
        if any(getattr(part, attribute, None) is not None for attribute in ("qconfig", "qconfig_mapping"))
    ]
    if not layers:
        return None
    return (
        f"the qconfig that the code gives {first_names(layers, _SHOWN)} is used by `recipe: {{qconfig: own}}` alone "
        "(torch engines, flows fx and eager); other recipes say themselves how a variant becomes int8"
    )


def _list_operators(nodes: Iterable[Any]) -> Iterator[str]:
    """The operators of a TorchScript graph that quantize or take int8, also in its branches and loops."""
    for node in nodes:
        kind = str(node.kind())
        if _quantizes(kind):
            yield kind
        for block in node.blocks():
            yield from _list_operators(block.nodes())


def _quantizes(kind: str) -> bool:
    """Whether an operator, ``namespace::name``, quantizes or takes int8."""
    namespace, _, name = kind.partition("::")
    return namespace in _NAMESPACES or (namespace == "aten" and (name.startswith(_ATEN) or "fake_quant" in name))


def _kind_of(function: Any) -> str:
    """``namespace::name`` of an operator as the dispatcher has it."""
    return f"{function.namespace}::{str(function.overloadpacket).partition('.')[2]}"


def _list_calls(module: Any, example: tuple[Any, ...]) -> list[str]:
    """The operators that quantize in one call of a module; none where it does not take the example, which is told
    elsewhere."""
    import torch

    from qbench.quant.operator_mode import OperatorMode

    names: list[str] = []

    class Quantizing(OperatorMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.extend(filter(_quantizes, [_kind_of(function)]))
            return function(*args, **(kwargs or {}))

    try:
        with torch.no_grad(), Quantizing():
            module(*example)
    except Exception as error:  # a user's forward, and operators that cannot be watched, raise all kinds
        if out_of_memory(error):
            raise
    return names


def _list_parts(module: Any) -> Iterator[str]:
    """The layers, tensors and calls of a Python module that are quantized, by name."""
    import torch

    from qbench.torch_private import OpOverload

    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule) and hasattr(part, "forward"):
            yield from (f"{name}: {kind}" for kind in _list_operators(part.inlined_graph.nodes()))
        if type(part).__module__.startswith(_PACKAGES):
            yield f"{name or 'the network'}: {type(part).__name__}"
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            if isinstance(node.target, OpOverload) and _quantizes(_kind_of(node.target)):
                yield str(node.target)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_quantized or type(tensor).__module__.startswith("torchao"):
            yield name
