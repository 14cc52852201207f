"""The proof that a rewritten network is the same: every output, on the examples, alone and in a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qbench.errors import out_of_memory
from qbench.quant.canonical import function_trace

# Folding moves roundings of float32 about: a share of the largest output.
TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Difference:
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
            for other in _resized(example):
                try:
                    self._cases.append((other, module(*other)))
                except Exception as error:  # the user's forward can raise anything: it takes no such batch
                    if out_of_memory(error):
                        raise

    def difference(self, module: Any) -> Difference:
        """The largest one over all inputs; ``module`` is called as it is, in its mode."""
        import torch

        found = Difference(largest=0.0, share=0.0)
        with torch.no_grad():
            for inputs, wanted in self._cases:
                try:
                    given = module(*inputs)
                except Exception as error:  # a rewrite that does not run is not equal
                    if out_of_memory(error):
                        raise
                    return Difference(largest=float("inf"), share=float("inf"))
                here = difference(wanted, given)
                found = Difference(largest=max(found.largest, here.largest), share=max(found.share, here.share))
        return found


def difference(wanted: Any, given: Any) -> Difference:
    """Between two results of a network: a tensor, or tensors inside lists, tuples and dicts."""
    ours, theirs = function_trace.tensors(wanted), function_trace.tensors(given)
    if len(ours) != len(theirs):
        return Difference(largest=float("inf"), share=float("inf"))
    pairs = [_of_tensors(one, other) for one, other in zip(ours, theirs, strict=True)]
    largest = max((one for one, _ in pairs), default=0.0)
    return Difference(largest=largest, share=max((share for _, share in pairs), default=0.0))


def _of_tensors(given: Any, other: Any) -> tuple[float, float]:
    if given.shape != other.shape or given.dtype != other.dtype:
        return float("inf"), float("inf")
    apart = (given != other) & ~(given.isnan() & other.isnan())
    if not bool(apart.any()):
        return 0.0, 0.0
    finite = given[given.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() and given.is_floating_point() else 0.0
    largest = float((given[apart] - other[apart]).abs().max())
    if not (largest < float("inf") and scale > 0):  # NaN, infinity and whole numbers are the same or not
        return float("inf"), float("inf")
    return largest, largest / scale


def _resized(example: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The same inputs as a batch of another size: of 2 where it is of 1, else of 1."""
    import torch

    if len(example[0]) == 1:
        return [tuple(torch.cat([tensor, tensor]) for tensor in example)]
    return [tuple(tensor[:1] for tensor in example)]
