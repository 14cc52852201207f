"""Where the time of an AOTInductor package goes, by torch's profiler: of one that was compiled to be watched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from qbench.errors import CaseSkipped
from qbench.quant.artifacts import aoti
from qbench.quant.artifacts.node_profile import CallProfile, Kind
from qbench.quant.artifacts.torchscript_profile import watch_calls

_CALLED, _FUSED = "aoti_torch_cpu_", re.compile(r"graph_\d+_cpp_fused_(\w+)")
_INT8_PRODUCTS = ("_qconv", "_qlinear")
_PRODUCTS = ("conv", "linear", "addmm", "mm", "bmm", "baddbmm", "mkl_linear")
# What generated code only converts: the names of what was fused into it are all of these.
_CONVERSIONS = re.compile(r"(de)?quantize_per_(tensor|channel)(_tensor)?|_to_copy|clone|_unsafe_view|\d+")


def time_nodes(file: Path, example: list[Any], *, calls: int) -> CallProfile:
    """The kernels of a call of a package with one example's tensors, over that many calls on the threads that torch
    has; raises ``CaseSkipped`` where the package was not compiled with ``watched``."""
    if not aoti.is_watched(file):
        raise CaseSkipped(f"{file.name} was not compiled to be watched")
    run = aoti.load(file).run
    return watch_calls(lambda: run(example), calls=calls, is_node=_is_kernel, kind_of=_kind)


def _is_kernel(name: str) -> bool:
    return name.startswith(_CALLED) or _FUSED.match(name) is not None


def _kind(kernel: str) -> Kind:
    if kernel.startswith(_CALLED):
        name = kernel.removeprefix(_CALLED)
        if name.startswith(_INT8_PRODUCTS):
            return "int8 product"
        plain = name.removeprefix("mkldnn_").removeprefix("_")
        return "float product" if plain.startswith(_PRODUCTS) else "other"
    match = _FUSED.match(kernel)
    left = "" if match is None else _CONVERSIONS.sub("", match[1]).strip("_")
    return "other" if left else "conversion"
