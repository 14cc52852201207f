"""What oneDNN says that it ran: the products of matrices, convolutions and recurrent layers of a call, by its own log.

The types of tensors do not tell which kernel multiplied them: torch computes some products of bf16 tensors with loops
of its own, which convert each value. A line of the log is a kernel of oneDNN's that ran:
https://uxlfoundation.github.io/oneDNN/dev_guide_verbose.html.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qbench.machine.runtime import read_onednn_of
from qbench.modes import Precision
from qbench.quant.artifacts.coverage import Layer

_TYPES: dict[str, Precision] = {"bf16": "bf16", "f16": "fp16"}
_FACTORS = ("src", "src_layer", "wei", "wei_layer")
_GATES = {"vanilla_lstm": 4, "vanilla_gru": 3, "lbr_gru": 3, "vanilla_rnn": 1}


@dataclass(frozen=True, kw_only=True)
class Product:
    """One primitive that ran: its ``kind``, multiply-accumulates of the whole call, and the format of both factors;
    None for one that is neither bf16 nor fp16."""

    kind: str
    macs: int
    precision: Precision | None


def watch(call: Callable[[], Any]) -> tuple[Product, ...]:
    """The products of a call, in order; of a call that has run before, so that its kernels are there."""
    import torch

    return read_products(read_onednn_of(call)) if torch.backends.mkldnn.is_available() else ()


def read_products(log: str) -> tuple[Product, ...]:
    """The products out of a log; what is no product, or in a form that is not known, is left out: what runs in 16 bits
    is then understated, never overstated."""
    products = (
        _read_line(line.split(",")) for line in log.splitlines() if "_verbose," in line and ",exec,cpu," in line
    )
    return tuple(product for product in products if product is not None)


def _read_line(fields: Sequence[str]) -> Product | None:
    kind, *rest = fields[fields.index("exec") + 2 :]
    count = _COUNTS.get(kind)
    if count is None or len(rest) < 7:
        return None
    implementation, *rest = rest
    descriptors, algorithm, problem = rest[1], rest[3], rest[4]
    macs = count(problem, algorithm)
    if macs is None:
        return None
    types = {part.partition(":")[0]: part.split(":")[1] for part in descriptors.split() if ":" in part}
    factors = {types[name] for name in _FACTORS if name in types}
    plain = implementation.startswith(("ref", "simple"))  # loops without instructions for the format
    precision = _TYPES.get(factors.pop()) if len(factors) == 1 and not plain else None
    return Product(kind=kind, macs=macs, precision=precision)


def _count_convolution(problem: str, algorithm: str) -> int | None:
    """``g2mb1_ic8oc16_ih16oh16kh3…_iw16ow16kw3…``: a deconvolution multiplies each of its inputs."""
    sizes = {name: int(size) for name, size in re.findall(r"(g|mb|ic|oc|[io][dhw]|k[dhw])(\d+)", problem)}
    if not {"mb", "ic", "oc"} <= sizes.keys():
        return None
    side = "i" if "deconvolution" in algorithm else "o"
    places = math.prod(sizes.get(f"{side}{axis}", 1) for axis in "dhw")
    kernel = math.prod(sizes.get(f"k{axis}", 1) for axis in "dhw")
    return sizes["mb"] * places * kernel * sizes["ic"] * sizes["oc"] // sizes.get("g", 1)


def _count_matrices(problem: str, algorithm: str) -> int | None:
    """``2x8x64:2x64x32``: of batches of 1 one matrix meets each of the others."""
    sides = [
        [int(size) for size in side.split("x")] for side in problem.split(":")[:2] if re.fullmatch(r"[\dx]+", side)
    ]
    if len(sides) != 2 or not len(sides[0]) == len(sides[1]) >= 2:
        return None
    (*left, rows, depth), (*right, _, columns) = sides
    return math.prod(map(max, left, right)) * rows * depth * columns


def _count_inner_product(problem: str, algorithm: str) -> int | None:
    """``mb1ic512ih7iw7oc1000``."""
    sizes = [int(size) for size in re.findall(r"(?:mb|ic|oc|i[dhw])(\d+)", problem)]
    return math.prod(sizes) if len(sizes) >= 3 else None


def _count_recurrent(problem: str, algorithm: str) -> int | None:
    """``l1t8mb1sic16slc32dhc16dic16``: layers, steps, batch, the sizes of state, input and output."""
    sizes = {name: int(size) for name, size in re.findall(r"(mb|sic|slc|dhc|l|t)(\d+)", problem)}
    cell = next((gates for name, gates in _GATES.items() if f"alg:{name} " in f"{algorithm} "), None)
    if cell is None or not {"l", "t", "mb", "sic", "slc", "dhc"} <= sizes.keys():
        return None
    directions = 1 if "unidirectional" in algorithm else 2
    steps = sizes["l"] * sizes["t"] * sizes["mb"] * directions
    return steps * cell * sizes["dhc"] * (sizes["slc"] + sizes["sic"])


_COUNTS: dict[str, Callable[[str, str], int | None]] = {
    "convolution": _count_convolution,
    "deconvolution": _count_convolution,
    "matmul": _count_matrices,
    "inner_product": _count_inner_product,
    "rnn": _count_recurrent,
}


def keep_proven(layers: Sequence[Layer], products: Iterable[Product]) -> tuple[Layer, ...]:
    """The layers of a network in 16 bits, of which those stay so for which a kernel of that format is seen to have run:
    one with as many multiply-accumulates, or of a recurrent layer several that have as many together."""
    halves = [product for product in products if product.precision is not None]
    single = Counter((product.macs, product.precision) for product in halves if product.kind != "rnn")
    recurrent = [product for product in halves if product.kind == "rnn"]
    kept = []
    for layer in layers:
        proven = single[layer.macs or 0, layer.precision] > 0
        if proven:
            single[layer.macs or 0, layer.precision] -= 1
        else:
            proven = _take_recurrent(recurrent, layer)
        kept.append(layer if proven else replace(layer, precision="fp32"))
    return tuple(kept)


def _take_recurrent(left: list[Product], layer: Layer) -> bool:
    """Whether the next kernels of recurrent layers are this layer's; they are then taken."""
    total = 0
    for count, product in enumerate(left, 1):
        total += product.macs
        if product.precision != layer.precision or total > (layer.macs or 0):
            return False
        if total == layer.macs:
            del left[:count]
            return True
    return False
