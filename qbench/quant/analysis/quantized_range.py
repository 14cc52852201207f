"""The values that an int8 artifact can represent at its inputs, read from the artifact; one function for each runtime.

An input that is quantized first thing has a range [(least - zero_point) scale, (most - zero_point) scale] (least and
most of the integer type); values beyond it are clipped. Where an input reaches a floating-point operator first, or is
quantized as it comes (dynamic), there is no such range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.quant.artifacts import onnx_outline


@dataclass(frozen=True, kw_only=True)
class InputRange:
    """The least and the greatest value that one input can take unclipped, and the step between two levels."""

    low: float
    high: float
    step: float


Ranges = tuple[InputRange | None, ...]


def range_of_levels(scale: float, zero_point: int, least: int, most: int) -> InputRange:
    """The range of the integers ``least`` to ``most``."""
    return InputRange(low=(least - zero_point) * scale, high=(most - zero_point) * scale, step=scale)


def narrowest(ranges: Sequence[InputRange]) -> InputRange | None:
    """What passes every one of several quantizers of one input; None for none."""
    if not ranges:
        return None
    return InputRange(
        low=max(candidate.low for candidate in ranges),
        high=min(candidate.high for candidate in ranges),
        step=max(candidate.step for candidate in ranges),
    )


def range_of_module(module: Any, example: tuple[Any, ...]) -> Ranges:
    """The range of each input of a torch module (a loaded TorchScript file, a converted PT2E module), None where it is
    not quantized first thing; watched while it runs on an example with one tensor per input.

    Between an input and its quantize only operators that keep values may stand: views, copies, padding with zeros.
    """
    import torch

    from qbench.quant.operator_mode import OperatorMode

    inputs = {_place(tensor): position for position, tensor in enumerate(example)}
    tensors = list(example)  # no storage may be freed and given to another tensor while it runs
    ranges: list[list[InputRange]] = [[] for _ in example]

    class Quantizations(OperatorMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            first = args[0] if args and isinstance(args[0], torch.Tensor) else None
            position = None if first is None else inputs.get(_place(first))
            if position is None:
                return result
            name = str(function.overloadpacket).rpartition(".")[2]
            if name == "quantize_per_tensor":
                ranges[position].append(_of_call(args))
            elif isinstance(result, torch.Tensor) and _keeps_values(name, args):
                inputs[_place(result)] = position
                tensors.append(result)
            return result

    with torch.inference_mode(), Quantizations():
        module(*example)
    return tuple(narrowest(of_input) for of_input in ranges)


# Those that may copy; views have their input's memory anyway. Inference mode shows operators whole that others split.
_KEEPING = {"_to_copy", "to", "clone", "contiguous", "reshape", "flatten", "constant_pad_nd", "pad"}


def _place(tensor: Any) -> int:
    """What tells a tensor's memory from all other; views share it."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # opaque layouts have none
        return -id(tensor)


def _keeps_values(name: str, args: Any) -> bool:
    """Whether an operator gives its input's values again, and zeros at most."""
    if name == "pad":
        return len(args) < 3 or (args[2] == "constant" and (len(args) < 4 or not args[3]))
    return name in _KEEPING and (name != "constant_pad_nd" or len(args) < 3 or not args[2])


def _of_call(args: Any) -> InputRange:
    """The range of ``quantize_per_tensor``, with torch's arguments (x, scale, zero_point, dtype) or PT2E's (x, scale,
    zero_point, least, most, dtype)."""
    import torch

    scale, zero_point = float(args[1]), int(args[2])
    if isinstance(args[3], torch.dtype):
        return range_of_levels(scale, zero_point, *_limits(args[3]))
    return range_of_levels(scale, zero_point, int(args[3]), int(args[4]))


def _limits(dtype: Any) -> tuple[int, int]:
    import torch

    integers = {torch.quint8: torch.uint8, torch.qint8: torch.int8, torch.qint32: torch.int32}
    limits = torch.iinfo(integers.get(dtype, dtype))
    return int(limits.min), int(limits.max)


def range_of_result(function: Any, args: Any, tensor: Any) -> InputRange | None:
    """The range of a tensor that a function gave: a quantized one, or the integers of PT2E's ``quantize_per_tensor``.
    None for all others, and where the scale was chosen as it ran, or is one for each channel."""
    import torch

    if tensor.is_quantized:
        if tensor.qscheme() not in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            return None
        return range_of_levels(tensor.q_scale(), tensor.q_zero_point(), *_limits(tensor.dtype))
    name = getattr(function, "__name__", str(function)).partition(".")[0].strip("_")
    fixed = name == "quantize_per_tensor" and len(args) > 4 and isinstance(args[1], float | int)
    return _of_call(args) if fixed else None


def range_of_onnx(file: Path) -> Ranges:
    """The range of each input of an ONNX file (of the graph's inputs, the initializers left out), by the QuantizeLinear
    that reads it; None where none does, per tensor and with constants."""
    graph = onnx_outline.read_outline(file).graph
    constants = {constant.name: constant for constant in graph.initializer}
    constants |= {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    inputs = [value.name for value in graph.input if value.name not in constants]
    return tuple(_of_tensor(name, graph, constants) for name in inputs)


_PASSING = ("Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze")


def _of_tensor(name: str, graph: Any, constants: dict[str, Any]) -> InputRange | None:
    ranges = []
    for node in _readers(name, graph):
        if node.op_type in _PASSING or (node.op_type == "Pad" and _pads_zeros(node, constants)):
            behind = _of_tensor(node.output[0], graph, constants)
        else:
            behind = range_of_quantize(node, constants) if node.op_type == "QuantizeLinear" else None
        if behind is not None:
            ranges.append(behind)
    return narrowest(ranges)


def _readers(name: str, graph: Any) -> Iterator[Any]:
    return (node for node in graph.node if name in node.input)


def _pads_zeros(node: Any, constants: dict[str, Any]) -> bool:
    from onnx import numpy_helper

    mode = next((attribute.s.decode() for attribute in node.attribute if attribute.name == "mode"), "constant")
    if len(node.input) < 3 or not node.input[2]:
        return mode == "constant"
    value = constants.get(node.input[2])
    return mode == "constant" and value is not None and not numpy_helper.to_array(value).any()


def range_of_quantize(node: Any, constants: dict[str, Any]) -> InputRange | None:
    """The range of a QuantizeLinear; None where it is one for each channel, or its scale is no constant."""
    import numpy as np
    from onnx import numpy_helper

    scale = constants.get(node.input[1])
    zero = constants.get(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if scale is None or (len(node.input) > 2 and node.input[2] and zero is None):
        return None
    steps = numpy_helper.to_array(scale).reshape(-1)
    offsets = np.zeros(1, dtype=np.uint8) if zero is None else numpy_helper.to_array(zero).reshape(-1)
    if len(steps) != 1 or len(offsets) != 1 or offsets.dtype.kind not in "iu":
        return None
    limits = np.iinfo(offsets.dtype)
    return range_of_levels(float(steps[0]), int(offsets[0]), int(limits.min), int(limits.max))
