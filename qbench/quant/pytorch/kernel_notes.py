"""Slow paths of an engine's kernels, which a network falls into without a word."""

from __future__ import annotations

from typing import Any

from qbench.errors import first_names
from qbench.machine import fingerprint
from qbench.quant.pytorch.packed_layers import layers

_SHOWN = 3


def slow_note(int8: Any, engine: str) -> str | None:
    """Which convolutions of a converted module fall off fbgemm's fast path, with their shape; None without one."""
    slow = [f"{name} ({shape})" for name, shape in slow_convolutions(int8, engine)]
    if not slow:
        return None
    convolutions = "convolution takes" if len(slow) == 1 else "convolutions take"
    return (
        f"{len(slow)} grouped {convolutions} fbgemm's slow path, many times slower than fp32: "
        f"{first_names(slow, _SHOWN)}; the engine onednn has fast kernels for them"
    )


def slow_convolutions(int8: Any, engine: str) -> list[tuple[str, str]]:
    """(name, shape in words) of the grouped convolutions in a converted module that fbgemm computes group by group."""
    if engine not in ("fbgemm", "x86"):
        return []
    names = []
    for layer in layers(int8):
        name, packed, weight = layer.name, layer.parameters, layer.weight
        if layer.kernel.kind != "conv":
            continue
        groups = packed.groups()
        if groups == 1 or _runs_on_onednn(engine, groups):
            continue
        if not _fast(packed, weight):
            kernel, stride, padding = (
                "x".join(map(str, sizes)) for sizes in (weight.shape[2:], packed.stride(), packed.padding())
            )
            names.append((name, f"{groups} groups, kernel {kernel}, stride {stride}, padding {padding}"))
    return names


def _runs_on_onednn(engine: str, groups: int) -> bool:
    """The engine x86 gives a convolution to oneDNN where VNNI is there and it has at most 100 groups
    (aten/src/ATen/native/quantized/cpu/qconv.cpp, ``should_use_onednn_quant``); no switch hides VNNI from it."""
    return engine == "x86" and "avx512_vnni" in fingerprint.isa() and groups <= 100


def _fast(packed: Any, weight: Any) -> bool:
    """Whether fbgemm has a kernel for a grouped convolution (FBGEMM, src/FbgemmConv.cc ``takeDepthWiseFastPath`` and
    src/GroupwiseConv.cc ``fbgemmOptimizedGConv``)."""
    kernel, groups = list(weight.shape[2:]), packed.groups()
    each_in, each_out = int(weight.shape[1]), int(weight.shape[0]) // groups
    strides, padding, dilation = packed.stride(), packed.padding(), packed.dilation()
    plain = all(step == 1 for step in dilation) and all(step in (1, 2) for step in strides) and len(set(kernel)) == 1
    same = all(zeros == (kernel[0] - 1) // 2 for zeros in padding)
    if each_in == each_out == 1:
        sizes = (3, 5, 7) if len(kernel) == 2 else (3,)
        return plain and same and groups % 8 == 0 and kernel[0] in sizes
    return plain and same and each_in == each_out and each_in in (4, 8, 16) and kernel[0] == 3
