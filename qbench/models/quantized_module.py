"""Whether a network of torch's is quantized already: as fp32 it would make every comparison worthless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from qbench.errors import first_names

_SHOWN = 3  # names in a message
_ATEN = ("aten::quantize_per", "aten::dequantize", "aten::fake_quantize", "aten::_fake_quantize")
_NAMESPACES = ("quantized", "quantized_decomposed", "onednn", "torchao")
_PACKAGES = (
    *("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.ao.nn.quantizable", "torch.ao.nn.qat"),
    *("torch.ao.nn.intrinsic.qat", "torch.ao.quantization.fake_quantize", "torch.ao.nn.sparse.quantized", "torchao"),
)


def why_not_float(module: Any) -> str | None:
    """``already quantized (quantized::conv2d and 12 more)``; None for a float network."""
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        names = _list_operators(module.inlined_graph.nodes())
    else:
        names = _list_parts(module)
    unique = list(dict.fromkeys(names))
    return f"already quantized ({first_names(unique, _SHOWN)})" if unique else None


def describe_own_qconfig(module: Any) -> str | None:
    """Which layers have a ``qconfig`` of their author's, which no recipe reads; None where none has."""
    layers = [
        name or "the network" for name, part in module.named_modules() if getattr(part, "qconfig", None) is not None
    ]
    if not layers:
        return None
    return (
        f"the qconfig that the code gives {first_names(layers, _SHOWN)} is not used: the recipes of the suite say how "
        "each variant becomes int8"
    )


def _list_operators(nodes: Iterable[Any]) -> Iterator[str]:
    """The operators of a TorchScript graph that quantize or take int8, also in its branches and loops."""
    for node in nodes:
        kind = str(node.kind())
        if kind.startswith(_ATEN) or kind.partition("::")[0] in _NAMESPACES:
            yield kind
        for block in node.blocks():
            yield from _list_operators(block.nodes())


def _list_parts(module: Any) -> Iterator[str]:
    """The layers, tensors and calls of a Python module that are quantized, by name."""
    import torch

    for name, part in module.named_modules():
        if type(part).__module__.startswith(_PACKAGES):
            yield f"{name or 'the network'}: {type(part).__name__}"
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            if str(getattr(node.target, "namespace", "")) in _NAMESPACES:
                yield str(node.target)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_quantized or type(tensor).__module__.startswith("torchao"):
            yield name
