"""Where the time of a TorchScript file goes, by torch's own profiler."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from qbench.quant.artifacts.node_profile import (
    WARMUP_CALLS,
    CallProfile,
    Kind,
    NodeTime,
    median_of_calls,
    time_calls,
)

_CALL = "qbench: one call"
_CONVERSIONS = {"quantize_per_tensor", "quantize_per_channel", "dequantize", "quantize_per_tensor_dynamic", "to_mkldnn"}
# Operators of aten that multiply and accumulate, by what their names begin with.
_PRODUCTS = ("conv", "_conv", "linear", "addmm", "matmul", "mm", "bmm", "baddbmm", "einsum", "lstm", "gru", "rnn_")
_PRODUCTS_TOO = {"scaled_dot_product_attention", "bilinear", "mkldnn_convolution", "mv", "dot"}
_INT8_PRODUCTS = ("conv", "linear", "quantized_lstm", "quantized_gru")


def time_nodes(module: Any, inputs: tuple[Any, ...], *, calls: int) -> CallProfile:
    """The operators of a call of a loaded file with these tensors, over that many calls on the threads that torch has.

    An operator is what TorchScript calls: what it calls in turn counts as its own. Its ``layer`` is its name and
    position, since a frozen file knows no modules."""
    return watch_calls(lambda: module(*inputs), calls=calls, is_node=lambda name: "::" in name, kind_of=_kind)


def watch_calls(
    call: Callable[[], object], *, calls: int, is_node: Callable[[str], bool], kind_of: Callable[[str], Kind]
) -> CallProfile:
    """The outermost of the profiler's events of a call that are nodes, by their names, with the kinds of these."""
    import torch

    with torch.inference_mode():
        bare = time_calls(call, calls)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for _ in range(WARMUP_CALLS + calls):
                with torch.profiler.record_function(_CALL):
                    call()
    watched = [event for event in profiler.events() if event.name == _CALL]
    seconds = median_of_calls([_number_nodes(event, is_node) for event in watched[WARMUP_CALLS:]])
    operators = {key: key.partition("#")[0] for key in seconds}
    return CallProfile(
        nodes=tuple(
            NodeTime(layer=key, operator=operators[key], kind=kind_of(operators[key]), seconds=value)
            for key, value in seconds.items()
        ),
        call_seconds=bare,
        watched_seconds=statistics.median(event.cpu_time_total for event in watched[WARMUP_CALLS:]) / 1e6,
    )


def _number_nodes(call: Any, is_node: Callable[[str], bool]) -> dict[str, float]:
    """The seconds of each node of a call, by its name and position."""
    return {f"{name}#{number}": seconds for number, (name, seconds) in enumerate(_list_nodes(call, is_node))}


def _list_nodes(event: Any, is_node: Callable[[str], bool]) -> Iterator[tuple[str, float]]:
    """The outermost nodes within an event: name and seconds."""
    for child in sorted(event.cpu_children, key=lambda child: child.time_range.start):
        if is_node(child.name):
            yield child.name, child.cpu_time_total / 1e6
        else:  # a module's forward
            yield from _list_nodes(child, is_node)


def _kind(operator: str) -> Kind:
    namespace, _, name = operator.partition("::")
    if name in _CONVERSIONS:
        return "conversion"
    if name.startswith(_INT8_PRODUCTS) and (namespace == "quantized" or name.startswith("quantized_")):
        return "int8 product"
    if namespace == "aten" and (name.startswith(_PRODUCTS) or name in _PRODUCTS_TOO):
        return "float product"
    return "other"
