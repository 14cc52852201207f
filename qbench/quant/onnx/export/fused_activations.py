"""SiLU and GELU of what a convolution gives as bytes, in the form that ONNX Runtime runs fastest.

ONNX Runtime gives each reader of a dequantized tensor a dequantize node of its own, and then no longer sees that a
Sigmoid and the Mul behind it read the same: in fp32 it joins the two, between bytes it does not. A detector of 57 SiLUs
at 320 x 320, one thread, int8 by ONNX Runtime's own tool = 1: 1.05 -> 0.85 with VNNI, the same values
(``tests/benchmarks/by_hand.py detector``).

A SiLU that is read as bytes alone has a gate of bytes: the runtime has kernels on bytes for both. The gate is rounded
by at most 1 / 510, the product ``x * gate`` by at most as much as its own bytes round it, and less wherever ``x`` is
not its largest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import STANDARD

_DOMAIN = "com.microsoft"
_CLOSE = 1e-4  # how far a constant may be from the one of the formula: exporters write 1.4142 and 0.7071


@dataclass(frozen=True, kw_only=True)
class _Fused:
    """The operator that stands for a product, the tensor that it reads, its factor of that tensor, and the sigmoid that
    is one of its factors."""

    operator: str
    tensor: str
    alpha: float | None = None
    gate: Any | None = None


def fuse_activations(graph: Graph) -> None:
    """Rewrites, in place, each product of a QDQ graph that is a SiLU, ``x * sigmoid(a x)``, or a GELU,
    ``x (1 + erf(x / sqrt 2)) / 2``, of a dequantized ``x``: as one operator of the same values, or, where ``a`` is 1
    and the product is read as bytes alone, with a sigmoid of bytes. The node of the product keeps its name."""
    fused: dict[str, _Fused] = {}
    inside = set[str]()
    for node in reversed(graph.nodes):
        if _is(node, "Mul", "Div") and node.name not in inside:
            activation, parts = _match(graph, node)
            if activation is not None:
                fused[node.name] = activation
                inside |= parts
    if not fused:
        return
    with graph.editing() as nodes:
        for node in tuple(nodes):
            activation = fused.get(node.name)
            if activation is None:
                continue
            if activation.gate is not None and _is_read_as_bytes(graph, node):
                nodes += _round_gate(graph, activation)
            else:
                _rewrite(node, activation)
    used = any(node.domain == _DOMAIN for node in graph.nodes)
    if used and all(opset.domain != _DOMAIN for opset in graph.model.opset_import):
        graph.model.opset_import.add(domain=_DOMAIN, version=1)
    graph.drop_unused()


def _is_read_as_bytes(graph: Graph, node: Any) -> bool:
    """Whether one quantize node alone reads what a node gives."""
    readers = [reader for reader, _ in graph.readers(node.output[0])]
    return not graph.is_output(node.output[0]) and [reader.op_type for reader in readers] == ["QuantizeLinear"]


def _round_gate(graph: Graph, fused: _Fused) -> list[Any]:
    """The nodes that make bytes of a gate and give it back under its name; its sigmoid gets another output. Bytes are
    of the type that the tensor has."""
    import onnx

    maker = graph.maker(fused.tensor)
    assert fused.gate is not None, fused
    assert maker is not None, fused
    zero = graph.constant(maker.input[2])
    assert zero is not None, maker.name
    gate, plain = fused.gate.output[0], graph.fresh(f"{fused.gate.output[0]}_plain")
    fused.gate.output[0] = plain
    constants = [
        graph.add_constant(f"{gate}_scale", np.array(1 / 255, np.float32)),
        graph.add_constant(f"{gate}_zero_point", np.array(np.iinfo(zero.dtype).min, zero.dtype)),
    ]
    quantized = graph.fresh(f"{gate}_quantized")
    return [
        onnx.helper.make_node("QuantizeLinear", [plain, *constants], [quantized], name=graph.fresh(f"{gate}.quantize")),
        onnx.helper.make_node("DequantizeLinear", [quantized, *constants], [gate], name=graph.fresh(f"{gate}.give")),
    ]


def _rewrite(node: Any, fused: _Fused) -> None:
    import onnx

    node.op_type, node.domain = fused.operator, _DOMAIN
    node.input[:] = [fused.tensor]
    del node.attribute[:]
    if fused.alpha is not None:
        node.attribute.append(onnx.helper.make_attribute("alpha", fused.alpha))


def _match(graph: Graph, node: Any) -> tuple[_Fused | None, set[str]]:
    """What a product is, and the names of the products within it."""
    factor, tensors, parts = 1.0, list[str](), set[str]()
    for constant, tensor, part in _factors(graph, node):
        factor *= constant
        tensors += [tensor] if tensor else []
        parts.add(part)
    for gate, tensor in (tensors, tensors[::-1]) if len(tensors) == 2 else ():
        if not _is_dequantized(graph, tensor):
            continue
        maker = _only_maker(graph, gate)
        if maker is None:
            continue
        if _is(maker, "Sigmoid") and math.isclose(factor, 1):
            scale = _scale_of(graph, maker.input[0], tensor)
            if scale is not None:
                gate_node = maker if maker.input[0] == tensor else None
                return _Fused(operator="QuickGelu", tensor=tensor, alpha=scale, gate=gate_node), parts
        elif _is(maker, "Add") and math.isclose(factor, 0.5, rel_tol=_CLOSE) and _is_one_plus_erf(graph, maker, tensor):
            return _Fused(operator="Gelu", tensor=tensor), parts
    return None, set()


def _factors(graph: Graph, node: Any) -> Iterator[tuple[float, str, str]]:
    """The factors of a product: a number, or 1 and a tensor (NaN: divides by it), and the node that multiplies."""
    for position, name in enumerate(node.input):
        divides = _is(node, "Div") and position == 1
        number = _number(graph, name)
        if number:
            yield (1 / number if divides else number), "", node.name
            continue
        maker = None if divides else _only_maker(graph, name)
        if maker is not None and (_is(maker, "Mul") or _is_scaling(graph, maker)):
            yield from _factors(graph, maker)
        else:
            yield (math.nan if divides else 1.0), name, node.name


def _is_scaling(graph: Graph, node: Any) -> bool:
    """Whether a node multiplies or divides a tensor by a number."""
    numbers = [_number(graph, name) is not None for name in node.input]
    return (_is(node, "Mul") and any(numbers)) or (_is(node, "Div") and numbers[1])


def _scale_of(graph: Graph, scaled: str, tensor: str) -> float | None:
    """By which number a tensor is multiplied to give another; None where it is not."""
    if scaled == tensor:
        return 1.0
    maker = _only_maker(graph, scaled)
    if maker is None or not _is_scaling(graph, maker):
        return None
    factors = list(_factors(graph, maker))
    tensors = [name for _, name, _ in factors if name]
    return math.prod(factor for factor, _, _ in factors) if tensors == [tensor] else None


def _is_one_plus_erf(graph: Graph, node: Any, tensor: str) -> bool:
    """Whether an Add gives ``1 + erf(x / sqrt 2)`` of the tensor ``x``."""
    for unit, other in (node.input, tuple(node.input)[::-1]):
        maker = _only_maker(graph, other)
        if _number(graph, unit) == 1 and maker is not None and _is(maker, "Erf"):
            scale = _scale_of(graph, maker.input[0], tensor)
            return scale is not None and math.isclose(scale, math.sqrt(0.5), rel_tol=_CLOSE)
    return False


def _is_dequantized(graph: Graph, tensor: str) -> bool:
    maker = graph.maker(tensor)
    return maker is not None and _is(maker, "DequantizeLinear")


def _only_maker(graph: Graph, tensor: str) -> Any | None:
    """The node that gives a tensor which one node alone reads."""
    alone = len(graph.readers(tensor)) == 1 and not graph.is_output(tensor)
    return graph.maker(tensor) if alone else None


def _number(graph: Graph, tensor: str) -> float | None:
    """The value of a constant of one element."""
    value = graph.constant(tensor)
    return float(value.item()) if value is not None and value.size == 1 and value.ndim <= 1 else None


def _is(node: Any, *kinds: str) -> bool:
    return node.op_type in kinds and node.domain in STANDARD
