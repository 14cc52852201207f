"""Zero padding around a convolution: as pairs by axis, and as a convolution's own argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

# Zeros before and after each spatial axis, first axis first.
Pairs: TypeAlias = "tuple[tuple[int, int], ...]"


def of_pad(pad: Any, spatial: int) -> Pairs | None:
    """``F.pad``'s list (last axis first) as pairs for so many spatial axes; None where it cuts, or touches another
    axis, or is no list of numbers."""
    if not isinstance(pad, list | tuple) or not all(isinstance(number, int) for number in pad) or len(pad) % 2:
        return None
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    if any(min(pair) < 0 for pair in pairs) or any(pair != (0, 0) for pair in pairs[spatial:]):
        return None
    pairs = pairs[:spatial] + [(0, 0)] * (spatial - len(pairs))
    return tuple(reversed(pairs))


def of_argument(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> Pairs:
    """A convolution's ``padding`` as pairs: a number, one number per axis, ``valid`` or ``same`` (which puts the odd
    zero behind, as torch does)."""
    if padding == "valid":
        return tuple((0, 0) for _ in kernel)
    if padding == "same":
        totals = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((number, number) for number in per_axis(padding, len(kernel)))


def per_axis(value: Any, spatial: int) -> tuple[int, ...]:
    """One number per spatial axis, of a number or a list of one or of all."""
    numbers = tuple(value) if isinstance(value, list | tuple) else (value,)
    return numbers * spatial if len(numbers) == 1 else numbers


def add_pads(inner: Pairs, other: Pairs) -> Pairs:
    """Both, one around the other."""
    return tuple((a + c, b + d) for (a, b), (c, d) in zip(inner, other, strict=True))


def symmetric(pairs: Pairs) -> bool:
    """Whether a convolution's own argument can say it."""
    return all(before == behind for before, behind in pairs)


def as_pad(pairs: Pairs) -> tuple[int, ...]:
    """``F.pad``'s list: last axis first."""
    return tuple(number for pair in reversed(pairs) for number in pair)


def make_pad_layer(pairs: Pairs, mode: str = "zeros") -> Any:
    """The module that pads so; ``mode`` as in a convolution's ``padding_mode``."""
    from torch import nn

    name = {"zeros": "Zero", "reflect": "Reflection", "replicate": "Replication", "circular": "Circular"}[mode]
    return getattr(nn, f"{name}Pad{len(pairs)}d")(as_pad(pairs))


def pairs_of(module: Any) -> Pairs | None:
    """What a padding module does, where it pads the spatial axes with zeros; else None."""
    from torch import nn

    kinds = ((nn.ConstantPad1d, nn.ZeroPad1d), (nn.ConstantPad2d, nn.ZeroPad2d), (nn.ConstantPad3d, nn.ZeroPad3d))
    for spatial, kind in enumerate(kinds, start=1):
        if type(module) in kind:
            return of_pad(module.padding, spatial) if module.value == 0 else None
    return None


def convolves(module: Any) -> bool:
    """Whether it is a convolution of torch's own, not transposed."""
    from torch import nn

    return type(module) in (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def set_padding(convolution: Any, pairs: Pairs) -> None:
    """Makes symmetric ``pairs`` a convolution's own padding."""
    convolution.padding = tuple(before for before, _ in pairs)
    convolution._reversed_padding_repeated_twice = list(as_pad(pairs))
