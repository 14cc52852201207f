"""The int8 layers of torch's engines, as their kernels for AVX2 add them.

fbgemm adds neighbours in 16 bits in the order of the kernel's rows, columns and channels (in its depthwise kernels, on
every CPU, the neighbouring places of one channel). onednn fills up the channels of each place to an even number; its
kernels for depthwise and other small groups are exact. The engine x86 takes one of the two for each layer.

A CPU with VNNI whose engines are limited by their switches is in two things unlike one without it (seen on an emulated
Haswell): there x86 gives every layer to fbgemm, and fbgemm's kernel for groups of few channels adds in 16 bits. Here
both ask the CPU itself, and that kernel is exact. So who asks says which of the two is meant (``switched``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.machine import fingerprint
from qbench.quant.pytorch.packed_layers import LayerKernel
from qbench.quant.saturation.pair_sums import PairedProduct

Array = NDArray[Any]
_MOST_GROUPS = 100  # that the engine x86 gives to onednn


def choose_engine(engine: str, kernel: LayerKernel) -> str:
    """The engine whose kernel ``x86`` takes for a layer with symmetric weights (PyTorch, OnednnUtils.h,
    ``should_use_onednn_quant``: on a CPU with AVX512-VNNI that of onednn for at most 100 groups); others themselves.
    On this CPU, limited to AVX2."""
    if engine != "x86":
        return engine
    return "onednn" if has_vnni() and kernel.groups <= _MOST_GROUPS else "fbgemm"


def has_vnni() -> bool:
    """Whether torch's engines find AVX512-VNNI when they ask the CPU."""
    return "avx512_vnni" in fingerprint.isa()


def read_product(
    engine: str, kernel: LayerKernel, weight: Array, zero_point: int, *, switched: bool
) -> PairedProduct | str | None:
    """The sums of a layer with signed bytes as weight on ``fbgemm`` or ``onednn``; why they are not modelled, in words;
    None where they are exact. ``zero_point``: that of its input. ``switched``: on this CPU, limited to AVX2; else on a
    CPU without VNNI."""
    if kernel.kind == "conv_transpose":
        return "transposed convolutions are not modelled"
    product = PairedProduct(
        weight=weight,
        pairing="flat" if engine == "fbgemm" else "even",
        stride=kernel.stride,
        dilation=kernel.dilation,
        pads=tuple((padding, padding) for padding in kernel.padding),
        groups=kernel.groups,
        zero_point=zero_point,
    )
    if engine == "fbgemm":
        exact = switched and has_vnni() and _takes_group_kernel(product)
    else:
        exact = _exact_on_onednn(product)
    return None if exact else product


def _takes_group_kernel(product: PairedProduct) -> bool:
    """Whether fbgemm takes the kernel for groups of few channels (FBGEMM, src/GroupwiseConv.cc,
    ``fbgemmOptimizedGConv``; how many groups it takes together was tried on torch 2.13)."""
    inputs, outputs = product.weight.shape[1], len(product.weight) // product.groups
    plain = all(step == 1 for step in product.dilation) and set(product.stride) in ({1}, {2})
    same = product.kernel == (3, 3) and set(product.pads) == {(1, 1)}
    together = {2: 8, 4: 4, 8: 1, 16: 1}.get(inputs)
    return plain and same and inputs == outputs and together is not None and product.groups >= together


def _exact_on_onednn(product: PairedProduct) -> bool:
    """Whether it takes a reference kernel or the depthwise one: its kernels for AVX2 take channels by fours."""
    outputs = len(product.weight) // product.groups
    return product.groups > 1 and (product.weight.shape[1] % 4 > 0 or outputs % 4 > 0)


def finish(
    engine: str,
    scales: tuple[float, Array, float],
    zero: int,
    bias: Array | None,
    low: int,
    sums: Array,
    channel: Array,
) -> Array:
    """Bytes for exact sums less zero points; ``scales``: of the input, of the weight by channel, and of the output with
    its ``zero`` point; ``low``: the least byte, above 0 behind a ReLU. Each engine's own order of float operations."""
    unit, y = np.float32(1), np.float32(scales[2])
    x, weight = np.float32(scales[0]), scales[1].astype(np.float32)
    weight = weight[channel % weight.size]  # one for each, or one for all
    values, offsets = sums.astype(np.float32), None if bias is None else bias.astype(np.float32)[channel]
    if engine == "fbgemm":
        values = values if offsets is None else values + offsets / (x * weight)
        scaled = values * (x * weight / y)
    else:  # torch hands scales of activations on as what they divide by
        values = values * (unit / (unit / x)) * weight
        scaled = (values if offsets is None else values + offsets) * (unit / y)
    levels: Array = np.clip(np.rint(scaled) + zero, low, 255).astype(np.uint8)
    return levels
