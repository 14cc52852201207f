"""What an engine's kernels do to an int8 network that its user did not ask for: slow paths, and sums that saturate."""

from __future__ import annotations

from typing import Any

import torch

from qbench.quant import torch_ao
from qbench.quant.recipe import Recipe

_SHOWN = 3


def saturation_note(engine: str, recipe: Recipe) -> str | None:
    """That full-range operands may overflow on this CPU; None where they cannot, or where the recipe avoids it."""
    if recipe.reduce_range or not torch_ao.saturates(engine) or (recipe.framework_default and engine != "onednn"):
        return None
    return (
        f"{engine} adds pairs of products in 16 bits on this CPU (no VNNI), which full-range activations and weights "
        "may saturate; reduce_range: true avoids it"
    )


def slow_note(int8: Any, engine: str) -> str | None:
    """Which convolutions of a converted module fall off fbgemm's fast path, with their shape; None without one."""
    slow = [f"{name} ({shape})" for name, shape in slow_convolutions(int8, engine)]
    if not slow:
        return None
    more = f" and {len(slow) - _SHOWN} more" if len(slow) > _SHOWN else ""
    convolutions = "convolution takes" if len(slow) == 1 else "convolutions take"
    return (
        f"{len(slow)} grouped {convolutions} fbgemm's slow path, many times slower than fp32: "
        f"{', '.join(slow[:_SHOWN])}{more}; the engine onednn has fast kernels for them"
    )


def slow_convolutions(int8: Any, engine: str) -> list[tuple[str, str]]:
    """(name, shape in words) of the grouped convolutions in a converted module that fbgemm computes group by group."""
    if engine not in ("fbgemm", "x86"):
        return []
    found = []
    for name, packed in _packed(int8):
        groups, weight = packed.groups(), packed.unpack()[0]
        if groups == 1 or packed.transpose() or _runs_on_onednn(engine, groups):
            continue
        if not _fast(packed, weight):
            kernel, stride, padding = (
                "x".join(map(str, sizes)) for sizes in (weight.shape[2:], packed.stride(), packed.padding())
            )
            found.append((name, f"{groups} groups, kernel {kernel}, stride {stride}, padding {padding}"))
    return found


def _packed(int8: Any) -> list[tuple[str, Any]]:
    """(name, packed parameters) of the convolutions that a converted module holds, as modules or as functions."""
    found = []
    for name, part in int8.named_modules():
        for attribute, value in vars(part).items():
            if isinstance(value, torch.ScriptObject) and "Conv" in str(value._type()):
                found.append((name if attribute == "_packed_params" else f"{name}.{attribute}".strip("."), value))
    return found


def _runs_on_onednn(engine: str, groups: int) -> bool:
    """The engine x86 gives a convolution to oneDNN where VNNI is there and it has at most 100 groups
    (aten/src/ATen/native/quantized/cpu/qconv.cpp, ``should_use_onednn_quant``)."""
    return engine == "x86" and not torch_ao.saturates("x86") and groups <= 100


def _fast(packed: Any, weight: Any) -> bool:
    """Whether fbgemm has a kernel for a grouped convolution (FBGEMM, src/FbgemmConv.cc ``takeDepthWiseFastPath`` and
    src/GroupwiseConv.cc ``fbgemmOptimizedGConv``)."""
    kernel, groups = list(weight.shape[2:]), packed.groups()
    each_in, each_out = int(weight.shape[1]), int(weight.shape[0]) // groups
    strides, padding, dilation = packed.stride(), packed.padding(), packed.dilation()
    plain = all(one == 1 for one in dilation) and all(one in (1, 2) for one in strides) and len(set(kernel)) == 1
    same = all(one == (kernel[0] - 1) // 2 for one in padding)
    if each_in == each_out == 1:
        sizes = (3, 5, 7) if len(kernel) == 2 else (3,)
        return plain and same and groups % 8 == 0 and kernel[0] in sizes
    return plain and same and each_in == each_out and each_in in (4, 8, 16) and kernel[0] == 3
