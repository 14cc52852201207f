"""Whose default quantization an int8 TorchScript network follows, read from what it computes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

import torch

from qbench.quant.artifacts import torchscript
from qbench.quant.artifacts.tracing import known_warnings
from qbench.quant.operator_mode import OperatorMode

# (bits of activations, weights per channel) of torch's default qconfigs: fbgemm and x86 leave room for sums of 16 bits.
_DEFAULTS = {(7, True): "fbgemm and x86", (8, True): "onednn", (8, False): "qnnpack"}
# Between the levels that 7 bits reach (127) and those that 8 bits do (255), at the most active value of a layer.
_SEVEN_BITS = 180


def describe_scheme(module: Any, examples: Iterable[tuple[Any, ...]]) -> str | None:
    """``activations in 7 bits, weights per channel, as in the default qconfig of fbgemm and x86``, from what the
    examples reach in each layer; None where nothing shows it."""
    levels: dict[int, int] = {}
    per_channel: set[bool] = set()

    class Watching(OperatorMode):
        """Sees the levels of quantized tensors, in the order in which they come, and the weights."""

        def __init__(self) -> None:
            super().__init__()
            self.position = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.dtype == torch.quint8:
                levels[self.position] = max(levels.get(self.position, 0), int(result.int_repr().max()))
                self.position += 1
            if function.namespace == "quantized" and len(args) > 1:
                weight = torchscript.unpack_weight(str(function.overloadpacket).partition(".")[2], args[1])
                if weight is not None:
                    per_channel.add(weight.qscheme() not in (torch.per_tensor_affine, torch.per_tensor_symmetric))
            return result

    with torch.inference_mode(), known_warnings():
        for example in examples:
            with Watching():
                module(*example)
    if not levels or not per_channel:
        return None
    bits = 7 if statistics.median(levels.values()) < _SEVEN_BITS else 8
    whose = _DEFAULTS.get((bits, True in per_channel))
    text = f"activations in {bits} bits, weights per {'channel' if True in per_channel else 'tensor'}"
    return f"{text}, as in the default qconfig of {whose}" if whose else f"{text}, as in no engine's default qconfig"
