"""The proof that a rewritten network is the same: every output, on the examples, alone and in a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from qbench.errors import out_of_memory
from qbench.quant.canonical import function_trace

# Folding moves roundings of float32 about: a share of the largest output.
TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class OutputDifference:
    """``largest`` absolute difference of any output; ``share`` of the largest output of the same tensor. Both are
    infinite where the outputs differ in number, shape, type, NaN or infinity, or where the rewritten network raises."""

    largest: float
    share: float

    @property
    def none(self) -> bool:
        """Whether it is within ``TOLERANCE``."""
        return self.share <= TOLERANCE


class Judge:
    """What a network gives for some inputs, to hold its rewritten forms against."""

    def __init__(self, module: Any, example: tuple[Any, ...]) -> None:
        import torch

        with torch.no_grad():
            self._cases = [(example, module(*example))]
            for resized in _resized(example):
                try:
                    self._cases.append((resized, module(*resized)))
                except Exception as error:  # the user's forward can raise anything: it takes no such batch
                    if out_of_memory(error):
                        raise

    def difference(self, module: Any) -> OutputDifference:
        """The largest one over all inputs; ``module`` is called as it is, in its mode."""
        import torch

        largest = OutputDifference(largest=0.0, share=0.0)
        with torch.no_grad():
            for inputs, expected in self._cases:
                try:
                    outputs = module(*inputs)
                except Exception as error:  # a rewrite that does not run is not equal
                    if out_of_memory(error):
                        raise
                    return OutputDifference(largest=float("inf"), share=float("inf"))
                here = measure_difference(expected, outputs)
                largest = OutputDifference(
                    largest=max(largest.largest, here.largest), share=max(largest.share, here.share)
                )
        return largest


def measure_difference(expected: Any, outputs: Any) -> OutputDifference:
    """Between two results of a network: a tensor, or tensors inside lists, tuples and dicts."""
    ours, theirs = function_trace.flatten_tensors(expected), function_trace.flatten_tensors(outputs)
    if len(ours) != len(theirs):
        return OutputDifference(largest=float("inf"), share=float("inf"))
    pairs = [_of_tensors(actual, other) for actual, other in zip(ours, theirs, strict=True)]
    largest = max((actual for actual, _ in pairs), default=0.0)
    return OutputDifference(largest=largest, share=max((share for _, share in pairs), default=0.0))


def _of_tensors(tensor: Any, other: Any) -> tuple[float, float]:
    if tensor.shape != other.shape or tensor.dtype != other.dtype:
        return float("inf"), float("inf")
    apart = (tensor != other) & ~(tensor.isnan() & other.isnan())
    if not bool(apart.any()):
        return 0.0, 0.0
    finite = tensor[tensor.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() and tensor.is_floating_point() else 0.0
    largest = float((tensor[apart] - other[apart]).abs().max())
    if scale == 0 or math.isnan(largest):  # NaN, infinity and whole numbers are the same or not
        return float("inf"), float("inf")
    return largest, largest / scale


def _resized(example: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The same inputs as a batch of another size: of 2 where it is of 1, else of 1."""
    import torch

    if len(example[0]) == 1:
        return [tuple(torch.cat([tensor, tensor]) for tensor in example)]
    return [tuple(tensor[:1] for tensor in example)]
