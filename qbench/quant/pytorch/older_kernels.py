"""Which sums of torch's int8 layers can overflow on CPUs without VNNI, told from the weights on any machine.

The order in which their kernels add two products in 16 bits is known (``quant.saturation.torch_products``; the switches
that hide instructions show that AVX2 and AVX-512 pair alike, but that onednn's kernels for AVX-512 take small groups,
too). Where it is not, any two weights of a channel may meet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from qbench.quant.pytorch.packed_layers import LayerKernel
from qbench.quant.saturation import pair_sums, torch_products
from qbench.quant.saturation.pair_sums import PairedProduct

# A package of Inductor calls what onednn calls. Without VNNI the engine x86 gives every layer to fbgemm; where a switch
# hides VNNI it still gives most to onednn, since it asks the CPU itself.
_KERNELS = {"fbgemm": ("fbgemm",), "x86": ("fbgemm", "onednn"), "onednn": ("onednn",), "inductor": ("onednn",)}


def overflowing(engine: str, kernel: LayerKernel, levels: Any, *, top: int, target: Collection[str] = ("avx2",)) -> Any:
    """Of each output channel whether a sum can leave 16 bits on a CPU of a target, as a tensor of bool, for inputs of
    at most ``top``; ``levels`` are the integers of its weight."""
    return largest_pairs(engine, kernel, levels, target=target) * top > pair_sums.HIGHEST


def largest_pairs(engine: str, kernel: LayerKernel, levels: Any, *, target: Collection[str]) -> Any:
    """Of each output channel the largest sum of two weights of one sign that are added in 16 bits on a CPU of a target,
    where it is above 128 (else 0). There is none on qnnpack, which widens before it multiplies."""
    largest = torch.zeros(kernel.channels_out(levels), dtype=torch.int64)
    for name in _KERNELS.get(engine, ()):
        product = torch_products.read_product(name, kernel, levels.numpy(), 0, switched=False)
        if product is None and name == "onednn" and "avx512" in target and levels.shape[1] > 1:
            product = PairedProduct(weight=levels.numpy(), pairing="even", groups=kernel.groups)
        if isinstance(product, str):
            largest = torch.maximum(largest, _any_two(kernel, levels))
        elif product is not None:
            pairs = pair_sums.find_pairs(product)
            outputs, sums = (torch.from_numpy(array.astype("int64")) for array in (pairs.output, pairs.amounts.sum(0)))
            largest.scatter_reduce_(0, outputs, sums, "amax")
    return largest


def _any_two(kernel: LayerKernel, levels: Any) -> Any:
    """Of each output channel the largest sum of two weights of one sign, wherever they are."""
    rows = levels.int()
    if kernel.kind == "conv_transpose":
        each = rows.shape[0] // kernel.groups
        rows = rows.reshape(kernel.groups, each, rows.shape[1], -1).transpose(1, 2)
        rows = rows.reshape(kernel.groups * levels.shape[1], -1)
    rows = rows.flatten(1)
    sides = (rows.clamp_min(0), (-rows).clamp_min(0))
    return torch.stack([side.topk(min(2, side.shape[1]), dim=1).values.sum(dim=1) for side in sides]).amax(dim=0)


@contextmanager
def process_engine(engine: str) -> Iterator[None]:
    """The process's quantized engine is this one meanwhile."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        yield
    finally:
        torch.backends.quantized.engine = before
