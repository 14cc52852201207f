"""The observers that the torch flows have of their own for calibrators' names: torch's, and two of qbench's.

A calibrator that is not among ``OBSERVERS`` is used in the torch flows as it is registered, through
``calibrator_observer``.

``Percentile`` and ``LeastSquares`` count values in bins whose edges are multiples of a power of two. When the range
grows, pairs of bins merge exactly, so memory is bounded and the counts, hence the range, do not depend on the order of
batches nor on how the examples are cut into batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qbench.quant.pytorch.torch_ao import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    ObserverBase,
    UniformQuantizationObserverBase,
)

# Over [-R, R), R the power of two above the largest value: 1/16 to 1/32 of an 8-bit step for values of one sign.
BINS = 8192
_SMALLEST = -100  # the exponent of R at least: smaller values are zero to any scale, and 2**(12 + 100) is a float32
_COARSE = 4  # bins taken together where a range is searched: 1/4 to 1/8 of a step
FLOAT32_MAX = float(np.finfo(np.float32).max)
_SHRUNK = np.linspace(1.0, 0.2, 81)  # the ends of a range that are tried, as shares of the widest


class Histogram(HistogramObserver):  # type: ignore[misc]  # torch is Any to mypy
    """torch's HistogramObserver with its own result, found faster: values are counted in three vectorized passes, and
    the search for the range keeps its place in the cumulative counts by bisection instead of one element at a time."""

    def forward(self, x: Any) -> Any:
        """The input as it came; its values are counted."""
        if not x.numel() or not _update_finite_ends(self, values := x.detach().float()):
            return x
        counted, ends = not bool(_is_fresh(self)), torch.aminmax(values)
        low = torch.minimum(self.min_val, ends[0])
        high = torch.maximum(self.max_val, ends[1])
        counts = self._counted(values, float(low), float(high))
        if counted:
            counts = self._combine_histograms(self.histogram, self.min_val, self.max_val, counts, low, high)
        self.histogram.copy_(counts)
        self.min_val.copy_(low)
        self.max_val.copy_(high)
        return x

    def _counted(self, values: Any, low: float, high: float) -> Any:
        if self.bins / FLOAT32_MAX >= high - low:  # torch.histc widens an empty range by 1 on both sides
            return torch.zeros(self.bins).index_fill_(0, torch.tensor(self.bins // 2), float(values.numel()))
        index = torch.sub(values.reshape(-1), low).mul_(self.bins / (high - low)).to(torch.int32)
        return torch.bincount(index.clamp_(max=self.bins - 1), minlength=self.bins).float()

    def _non_linear_param_search(self) -> tuple[Any, Any]:
        if bool(self.min_val == self.max_val):
            return self.min_val, self.max_val
        total = float(torch.sum(self.histogram))
        cumulative = torch.cumsum(self.histogram, dim=0).numpy()
        step, alpha, beta = 1e-5, 0.0, 1.0
        start, end, least = 0, self.bins - 1, math.inf
        while alpha < beta:
            next_alpha, next_beta = alpha + step, beta - step
            left = min(max(int(np.searchsorted(cumulative, np.float32(next_alpha * total))), start), end)
            right = int(np.searchsorted(cumulative, np.float32(next_beta * total), side="right")) - 1
            right = max(min(right, end), start)
            next_start, next_end = start, end
            if left - start > end - right:
                next_start, alpha = left, next_alpha
            else:
                next_end, beta = right, next_beta
            if (next_start, next_end) == (start, end):
                continue
            error = self._compute_quantization_error(next_start, next_end)
            if error > least:
                break
            least, start, end = error, next_start, next_end
        width = (self.max_val - self.min_val) / self.bins
        return self.min_val + width * start, self.min_val + width * (end + 1)


def _update_finite_ends(observer: Any, values: Any) -> bool:
    """Whether all values are finite; where they are not, the observer keeps the ends that say so, which whoever
    calibrates refuses (torch's own observers pass over infinite values, and a NaN becomes a scale)."""
    low, high = torch.aminmax(values)
    finite = bool(torch.isfinite(low) & torch.isfinite(high))
    if isinstance(observer, _Counting) or not finite:
        observer.min_val.copy_(torch.minimum(observer.min_val, low))
        observer.max_val.copy_(torch.maximum(observer.max_val, high))
    return finite and bool(torch.isfinite(observer.min_val) & torch.isfinite(observer.max_val) | _is_fresh(observer))


def _is_fresh(observer: Any) -> Any:
    return (observer.min_val == torch.inf) & (observer.max_val == -torch.inf)


class _Counting(UniformQuantizationObserverBase):  # type: ignore[misc]
    """Counts the values that pass, with their exact ends; ``chosen`` makes a range of them."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.register_buffer("counts", torch.zeros(BINS, dtype=torch.int64))
        self.register_buffer("min_val", torch.tensor(math.inf))
        self.register_buffer("max_val", torch.tensor(-math.inf))
        self.exponent = _SMALLEST

    def forward(self, x: Any) -> Any:
        """The input as it came; its values are counted."""
        if x.numel():
            values = x.detach().float()
            if _update_finite_ends(self, values):
                largest = float(torch.maximum(-self.min_val, self.max_val))
                self._grow(math.frexp(largest)[1] if largest else _SMALLEST)
                self.counts += self._counted(values)
        return x

    def _grow(self, exponent: int) -> None:
        """Widens the bins until they reach 2**exponent; each doubling merges pairs."""
        while self.exponent < exponent:
            if not bool(self.counts.any()):
                self.exponent = exponent
                return
            merged = torch.zeros_like(self.counts)
            merged[BINS // 4 : 3 * BINS // 4] = self.counts.view(-1, 2).sum(1)
            self.counts.copy_(merged)
            self.exponent += 1

    def _counted(self, values: Any) -> Any:
        # A power of two: the product is exact, and so is the index.
        index = torch.mul(values.reshape(-1), 2.0 ** (12 - self.exponent)).floor_().to(torch.int32)
        return torch.bincount(index.add_(BINS // 2), minlength=BINS)

    def edges(self) -> NDArray[Any]:
        """The lower edge of each bin and the upper edge of the last."""
        return np.arange(-BINS // 2, BINS // 2 + 1) * 2.0 ** (self.exponent - 12)

    def chosen(self) -> tuple[float, float]:
        """(low, high) of the range, within the exact ends."""
        raise NotImplementedError

    def calculate_qparams(self) -> tuple[Any, Any]:
        """Scale and zero point of the chosen range, by torch's rule."""
        low, high = self.chosen()
        return self._calculate_qparams(torch.tensor(low), torch.tensor(high))  # type: ignore[no-any-return]


class Percentile(_Counting):
    """The range that holds at least ``percentile`` per cent of the values, the rest shared by both ends."""

    def __init__(self, percentile: float = 99.99, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.percentile = percentile

    def chosen(self) -> tuple[float, float]:
        """The ends, to the width of a bin (2**-12 to 2**-11 of the largest absolute value)."""
        counts, edges = self.counts.numpy(), self.edges()
        # Whole values at each end; rounded, since 100 - 99.9 is not 0.1.
        outside = math.floor(round(int(counts.sum()) * (100.0 - self.percentile) / 200.0, 6))
        below, above = np.cumsum(counts), np.cumsum(counts[::-1])
        low = edges[int(np.searchsorted(below, outside, side="right"))]
        high = edges[BINS - int(np.searchsorted(above, outside, side="right"))]
        return max(float(low), float(self.min_val)), min(float(high), float(self.max_val))


class LeastSquares(_Counting):
    """The range whose quantization has the least squared error over the values seen (calibrator ``mse``)."""

    def chosen(self) -> tuple[float, float]:
        """The best of the ranges that shrink both ends, then one of them, by shares of ``_SHRUNK``."""
        counts = self.counts.view(-1, _COARSE).sum(1).numpy()
        edges = self.edges()[::_COARSE]
        filled = counts > 0
        centers, weights = ((edges[:-1] + edges[1:]) / 2)[filled], counts[filled].astype(np.float64)
        low, high = float(self.min_val), float(self.max_val)

        def best(lows: NDArray[Any], highs: NDArray[Any]) -> tuple[float, float]:
            least = int(np.argmin(self._errors(centers, weights, lows, highs)))
            return float(lows[least]), float(highs[least])

        low, high = best(low * _SHRUNK, high * _SHRUNK)
        if low < 0 < high and self.qscheme == torch.per_tensor_affine:
            low, high = best(np.full_like(_SHRUNK, low), high * _SHRUNK)
            low, high = best(low * _SHRUNK, np.full_like(_SHRUNK, high))
        return low, high

    def _errors(
        self, values: NDArray[Any], weights: NDArray[Any], lows: NDArray[Any], highs: NDArray[Any]
    ) -> NDArray[Any]:
        """The squared error of each range, summed over all values; scale and zero point by torch's rule."""
        lows, highs = np.minimum(lows, 0)[:, None], np.maximum(highs, 0)[:, None]
        steps = self.quant_max - self.quant_min
        if self.qscheme == torch.per_tensor_symmetric:
            scales = np.maximum(-lows, highs) / (steps / 2)
            zeros = np.full_like(scales, (self.quant_min + self.quant_max) // 2 if self.has_customized_qrange else 128)
        else:
            scales = (highs - lows) / steps
            zeros = self.quant_min - np.rint(lows / np.maximum(scales, float(self.eps)))
        scales = np.maximum(scales, float(self.eps))
        levels = np.clip(np.rint(values / scales) + zeros, self.quant_min, self.quant_max)
        return np.asarray(np.square(values - (levels - zeros) * scales) @ weights)


class Clipped(ObserverBase):  # type: ignore[misc]
    """Another observer or fake-quantize behind a clamp to [low, high]: a following ReLU6 or Hardtanh, pulled forward.

    What passes on is clamped, too, so that the layers after it see what they would see behind the activation.
    ``make`` builds the observer.
    """

    def __init__(self, make: Any, low: float, high: float) -> None:
        inner = make()
        super().__init__(dtype=inner.dtype, is_dynamic=bool(inner.is_dynamic))
        self.inner, self.low, self.high = inner, low, high
        for name in ("qscheme", "quant_min", "quant_max"):
            setattr(self, name, getattr(inner, name))

    def forward(self, x: Any) -> Any:
        """The clamped input, as the inner one passes it on."""
        return self.inner(x.clamp(self.low, self.high))

    def calculate_qparams(self) -> tuple[Any, Any]:
        """The inner one's scale and zero point."""
        return self.inner.calculate_qparams()  # type: ignore[no-any-return]


OBSERVERS: Mapping[str, Any] = {
    "minmax": MinMaxObserver,
    "moving_average": MovingAverageMinMaxObserver,
    "histogram": Histogram,
    "percentile": Percentile,
    "mse": LeastSquares,
}
