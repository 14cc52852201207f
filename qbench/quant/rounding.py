"""How far rounding alone moves the outputs of a converted graph (PT2E)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qbench.quant import model_call

_QUANTIZE = "quantized_decomposed.quantize_per_tensor"
_DRAWS = 4


def spread(module: Any, examples: Sequence[tuple[Any, ...]]) -> float:
    """The largest difference of an output where every activation falls to either side of its step by chance (half a
    step of noise before each is rounded, in a few draws); 0 where nothing is rounded.

    Another order of sums changes a value by far less than a step, and only what lies on an edge falls to the other
    side, so kernels that compute the same graph stay below this. It is what tells them from wrong ones: a fixed share
    of the outputs is too much for a small network and too little for a deep one.
    """
    import torch

    if not any(_QUANTIZE in str(node.target) for node in getattr(getattr(module, "graph", None), "nodes", ())):
        return 0.0
    noise = torch.Generator().manual_seed(0)

    class Noisy(torch.fx.Interpreter):  # type: ignore[misc]  # torch.fx is Any to mypy here
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if _QUANTIZE in str(target):
                values, step = args[:2]
                args = (values + float(step) * (torch.rand(values.shape, generator=noise) - 0.5), *args[1:])
            return super().call_function(target, args, kwargs)

    noisy, largest = Noisy(module), 0.0
    with torch.no_grad():
        for example in examples:
            expected = model_call.first(module(*example))
            moved = [model_call.first(noisy.run(*example)) for _ in range(_DRAWS)]
            largest = max(largest, *(float((outputs - expected).abs().max()) for outputs in moved))
    return largest
