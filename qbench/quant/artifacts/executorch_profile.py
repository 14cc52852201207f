"""Where the time of an ExecuTorch program goes, by its own record of a call (ETDump)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qbench.quant.artifacts import executorch_program
from qbench.quant.artifacts.executorch_program import Ran
from qbench.quant.artifacts.node_profile import CallProfile, Kind, NodeTime, median_of_calls, time_calls

_CONVERSIONS = ("Convert", "native_call_quantize_per", "native_call_dequantize_per", "native_call_choose_qparams")


def time_nodes(file: Path, example: tuple[Any, ...], *, calls: int) -> CallProfile:
    """The kernels of a call with one example's tensors, over that many calls on the threads that are set. XNNPACK tells
    whole microseconds."""
    program = executorch_program.load(file)
    plain = time_calls(lambda: program.forward(example), calls)
    watched = executorch_program.watch_calls(file, example, calls=calls)
    seconds = [{f"{place} {kernel.name}": kernel.seconds for place, kernel in enumerate(call)} for call in watched]
    medians = median_of_calls(seconds)
    nodes = tuple(
        NodeTime(layer=kernel.name, operator=kernel.name, kind=_kind(kernel), seconds=medians[f"{place} {kernel.name}"])
        for place, kernel in enumerate(watched[0])
    )
    whole = executorch_program.load(file, watched=True)
    return CallProfile(
        nodes=nodes, call_seconds=plain, watched_seconds=time_calls(lambda: whole.forward(example), calls)
    )


def _kind(kernel: Ran) -> Kind:
    if kernel.multiplies:
        return "int8 product" if kernel.int8 else "float product"
    return "conversion" if kernel.name.startswith(_CONVERSIONS) else "other"
