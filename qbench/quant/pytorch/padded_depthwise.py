"""Zero padding before an int8 depthwise convolution becomes a rim of zeros around its kernel.

A convolution of torch.ao pads both sides alike. What a network pads otherwise (one zero behind, as TensorFlow does at
stride 2) is an operator of its own, which takes longer than the convolution; and with a padding that is not half of its
kernel fbgemm computes a depthwise convolution channel by channel, a hundred times slower. The same kernel off the
centre of a wider one pads alike and computes the same integers: a zero weight adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

from qbench.quant import model_call
from qbench.quant.artifacts import torchscript
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.canonical import padding
from qbench.quant.pytorch.int8_padding import zeros_of
from qbench.quant.pytorch.packed_layers import RIM, among_zeros, with_levels
from qbench.quant.pytorch.torch_ao import known_warnings, nniq, nnq
from qbench.torch_private import make_per_tensor_quantized_tensor

# The widest kernel for which an engine has a fast depthwise convolution: measured at 96 x 56 x 56 on torch 2.13,
# fbgemm 0.3 ms for 7 x 7 and 257 ms for 9 x 9, qnnpack 0.4 ms for 5 x 5 and 11 ms for 7 x 7.
WIDEST = {"fbgemm": 7, "x86": 7, "onednn": 7, "qnnpack": 5}
_KIND = {nnq.Conv2d: nnq.Conv2d, nniq.ConvReLU2d: nniq.ConvReLU2d}
_OWN = "qbench_share_of_kernel"  # on a widened convolution: the share of its kernel that is not the rim


@dataclass(frozen=True, kw_only=True)
class _Wide:
    """How a convolution changes: zeros around the input (explicit ones and its own) by axis, the new side of the
    kernel, and where in it the old one starts, by axis."""

    pairs: padding.Pairs
    side: int
    starts: tuple[int, int]


def widen(int8: Any, engine: str, example: tuple[Any, ...]) -> None:
    """Lets depthwise convolutions pad on their own; changes a converted module.

    Only those that give an output of the same size on the example, and the same integers on random ones. On inputs of
    another size the output is cut to what it was.
    """
    if engine not in WIDEST:
        return
    sizes = _sizes(int8, example)
    for prefix, part in list(int8.named_modules()):
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            name = f"{prefix}.{node.target}" if prefix else str(node.target)
            if node.op == "call_module" and name in sizes:
                _put(node, part, engine, sizes[name])
        part.graph.eliminate_dead_code()
        part.recompile()


def without_rims(layers: Sequence[Layer], int8: Any, example: tuple[Any, ...]) -> tuple[Layer, ...]:
    """The layers that ran in the file of a module, with the multiply-accumulates of its widened convolutions as the
    network has them: those with the rim left out."""
    shares = {name: getattr(part, _OWN) for name, part in int8.named_modules() if hasattr(part, _OWN)}
    if not shares:
        return tuple(layers)
    own_layers = torchscript.find_layers(int8, example)  # the same calls in the same order, under their own names
    return tuple(
        replace(layer, macs=round(layer.macs * shares.get(called.name, 1.0)))
        for layer, called in zip(layers, own_layers, strict=True)
    )


def _sizes(int8: Any, example: tuple[Any, ...]) -> dict[str, tuple[int, ...]]:
    """The height and width of what each depthwise convolution that is called once gets from the example."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    hooks = []
    for name, part in int8.named_modules():
        if type(part) in _KIND and part.groups == part.in_channels == part.out_channels:

            def note(_: Any, args: Any, name: str = name) -> None:
                shapes.setdefault(name, []).append(tuple(args[0].shape[2:]))

            hooks.append(part.register_forward_pre_hook(note))
    if hooks:
        with model_call.hooked(hooks), torch.inference_mode(), known_warnings():
            int8(*example)
    return {name: sizes[0] for name, sizes in shapes.items() if len(sizes) == 1}


def _put(node: Any, graph: Any, engine: str, padded: tuple[int, ...]) -> None:
    """Puts a wider convolution in the place of the one that a node calls, where there is one; it reads what was padded
    for it."""
    old = graph.get_submodule(node.target)
    source: Any = node.args[0] if node.args else None
    quantize = source if _quantizes_for(node, source, graph) else None
    pad: Any = source if quantize is None else quantize.args[0]
    explicit = zeros_of(pad, graph)
    if explicit is None or any(step != 1 for step in old.dilation):
        return
    pairs = padding.add_pads(explicit, padding.of_argument(old.padding, old.kernel_size, old.dilation))
    wide = _wide(pairs, old.kernel_size, WIDEST[engine])
    if wide is None or not _fits(wide, explicit, old, padded):
        return
    new = _widen(old, wide)
    cut = _Cut(pairs, old.kernel_size, old.stride)
    if not _same(old, explicit, new, cut):
        return
    graph.set_submodule(node.target, new)
    name = f"{node.name}_as_before"
    graph.add_submodule(name, cut)
    source = pad.args[0]
    if quantize is not None:  # zero is a level of every range: padding and quantizing change places
        quantize.replace_input_with(pad, source)
        source = quantize
    node.replace_input_with(node.args[0], source)
    with graph.graph.inserting_after(node):
        after = graph.graph.call_module(name, (node, source))
    node.replace_all_uses_with(after, delete_user_cb=lambda user: user is not after)


def _quantizes_for(node: Any, source: Any, graph: Any) -> bool:
    """Whether a node's input is a quantize for it alone."""
    if not isinstance(source, torch.fx.Node) or set(source.users) != {node}:
        return False
    if source.op == "call_module":
        return type(graph.get_submodule(source.target)) is nnq.Quantize
    return source.target is torch.quantize_per_tensor


def _wide(pairs: padding.Pairs, kernel: Sequence[int], widest: int) -> _Wide | None:
    """The least odd, square kernel that pads alike: half of it in front are the zeros in front of the input and the
    rim before the old kernel."""
    if any(before + behind > size - 1 for (before, behind), size in zip(pairs, kernel, strict=True)):
        return None
    half = max(max(before, size - 1 - before) for (before, _), size in zip(pairs, kernel, strict=True))
    if 2 * half + 1 > widest:
        return None
    (top, _), (left, _) = pairs
    return _Wide(pairs=pairs, side=2 * half + 1, starts=(half - top, half - left))


def _fits(wide: _Wide, explicit: padding.Pairs, old: Any, padded: tuple[int, ...]) -> bool:
    """Whether the wider kernel gives as many outputs at this size; elsewhere they are cut."""
    for axis, (before, behind) in enumerate(wide.pairs):
        size = padded[axis] - sum(explicit[axis])
        outputs = (size + before + behind - old.kernel_size[axis]) // old.stride[axis]
        if outputs != (size - 1) // old.stride[axis]:
            return False
    return True


def _widen(old: Any, wide: _Wide) -> Any:
    """The convolution with the old kernel among zeros."""
    with known_warnings():
        weight, bias = old.weight(), old.bias()
        levels = weight.int_repr()
        rim = among_zeros(levels, wide.side, *wide.starts)
        new = _KIND[type(old)](
            old.in_channels,
            old.out_channels,
            wide.side,
            stride=old.stride,
            padding=wide.side // 2,
            groups=old.groups,
            bias=bias is not None,
        )
        new.set_weight_bias(with_levels(rim, weight), bias)
    new.scale, new.zero_point = old.scale, old.zero_point
    setattr(new, RIM, (wide.side, *wide.starts))
    setattr(new, _OWN, levels[0].numel() / rim[0].numel())
    return new.eval()


def _same(old: Any, explicit: padding.Pairs, new: Any, cut: Any) -> bool:
    """Whether both give the same integers on random ones, at an even and an odd size; few levels, so that sums in 16
    bits do not overflow in one of them alone."""
    random = torch.Generator().manual_seed(0)
    for size in (8, 9):
        shape = (1, old.in_channels, size + old.kernel_size[0], size + old.kernel_size[1])
        with torch.inference_mode(), known_warnings():
            levels = torch.randint(0, 64, shape, generator=random, dtype=torch.uint8)
            x = make_per_tensor_quantized_tensor(levels, 0.05, 20)
            x = x.contiguous(memory_format=torch.channels_last)
            expected = old(functional.pad(x, padding.as_pad(explicit)))
            if not torch.equal(expected.int_repr(), cut(new(x), x).int_repr()):
                return False
    return True


class _Cut(torch.nn.Module):  # type: ignore[misc]  # torch is Any to mypy
    """Takes from a wider convolution's output the part that the old one gave, at any size of its input."""

    def __init__(self, pairs: padding.Pairs, kernel: Sequence[int], stride: Sequence[int]) -> None:
        super().__init__()
        self.more = tuple(before + behind - size for (before, behind), size in zip(pairs, kernel, strict=True))
        self.stride = tuple(stride)

    def forward(self, wide: Any, source: Any) -> Any:
        """The first outputs by axis: (size + padding - kernel) // stride + 1."""
        height, width = ((source.size(axis + 2) + self.more[axis]) // self.stride[axis] + 1 for axis in (0, 1))
        return wide[:, :, :height, :width]
