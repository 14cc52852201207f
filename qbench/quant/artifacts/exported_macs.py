"""Multiply-accumulates of the nodes of an exported graph, before and after a compiler rewrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Operator -> the place of its weight among the arguments, and the axis of the output's channels.
_WEIGHTED = {
    "onednn.qconv_pointwise": (3, 1),
    "onednn.qconv2d_pointwise": (3, 1),
    "onednn.qlinear_pointwise": (3, -1),
    "aten.convolution": (1, 1),
    "aten.linear": (1, -1),
    "mkldnn._convolution_pointwise": (1, 1),
    "mkldnn._convolution_pointwise_": (1, 1),
    "mkldnn._linear_pointwise": (1, -1),
    "mkl._mkl_linear": (2, -1),
}
_PRODUCTS = {"aten.mm": 0, "aten.bmm": 0, "aten.addmm": 1, "aten.baddbmm": 1}  # the place of the left factor


def name_operator(node: Any) -> str:
    """``aten.convolution``: the operator that a node calls, without its overload; empty for one that calls none."""
    from qbench.torch_private import OpOverload

    own = isinstance(node.target, OpOverload)
    target = node.target if own else getattr(node.target, "_op", None)  # ExecuTorch wraps torch's own
    return str(getattr(target, "overloadpacket", ""))


def count_macs(node: Any) -> int | None:
    """Multiply-accumulates of a node; None for one that has none, or that no int8 operator can stand for."""
    packet = name_operator(node)
    if packet in _WEIGHTED:
        place, axis = _WEIGHTED[packet]
        if packet.startswith("mkldnn") and node.target._overloadname.startswith("binary"):
            place += 1  # after the other operand
        transposed = packet == "aten.convolution" and bool(node.args[6])
        size = _size(node.args[0] if transposed else node)
        return _product(size) // size[axis] * _product(_size(node.args[place]))
    if packet == "mkldnn._convolution_transpose_pointwise":
        size = _size(node.args[0])
        return _product(size) // size[1] * _product(_size(node.args[1]))
    if packet in _PRODUCTS:
        return _product(_size(node)) * _size(node.args[_PRODUCTS[packet]])[-1]
    return None


def _size(node: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in node.meta["val"].shape)


def _product(size: Sequence[int]) -> int:
    product = 1
    for factor in size:
        product *= factor
    return product
