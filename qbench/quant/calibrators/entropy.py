"""The range after which the quantized distribution tells least apart from the clipped one."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from qbench.quant.calibrators.histogram import Counting

Array = NDArray[Any]
BINS = 2048
_ABSENT = 1e-4  # what a bin that the quantized distribution leaves empty is given, in values


class Entropy(Counting):
    """The absolute values in BINS equal bins; of the ends at every eighth of them, the one where the clipped
    distribution P and the same after merging into levels Q have the least Kullback-Leibler divergence of Q from P.
    Levels: half of the quantization's, or all where all values have one sign and it has an offset.

    Zero is exact in every quantization, so that the first bin counts like the second. Bins are equally wide: a single
    outlier of more than some hundred times the rest leaves too few for them; percentile and mse do not mind.
    Source: NVIDIA, "8-bit Inference with TensorRT", GTC 2017. Order and batches move the end by one candidate at most.
    """

    name: ClassVar[str] = "entropy"

    def range(self) -> tuple[float, float]:
        """The values inside the best end. Raises ``ValueError`` before the first value."""
        folded = self._histogram.bins().folded()
        low, high = self._histogram.low, self._histogram.high
        reach = max(high, -low)
        if reach == 0:
            return 0.0, 0.0
        levels = self.levels if self.asymmetric and low * high >= 0 else self.levels // 2
        end = _find_best_end(folded.even(BINS, 0.0, reach), levels) / BINS * reach
        return self.mirrored(end) if not self.asymmetric else (max(low, -end), min(high, end))


def _find_best_end(counts: Array, levels: int) -> int:
    """The number of bins to keep."""
    counts = counts.copy()
    counts[0] = counts[1]
    tails = counts.sum() - np.cumsum(counts)
    ends = np.arange(levels, BINS + 1, BINS // 256)
    return int(min(ends[::-1], key=lambda end: _divergence(counts[:end], tails[end - 1], levels)))


def _divergence(counts: Array, outside: float, levels: int) -> float:
    """Of the kept bins with what lies outside in their last one, after merging the kept into levels."""
    starts = np.arange(levels) * counts.size // levels
    sizes = np.diff(np.append(starts, counts.size))
    filled = counts > 0
    merged = np.add.reduceat(counts, starts) / np.maximum(np.add.reduceat(filled.astype(np.int64), starts), 1)
    q = np.where(filled, np.repeat(merged, sizes), 0.0)
    p = counts.copy()
    p[-1] += outside
    total = p.sum()
    if not total or not q.any():
        return np.inf
    occupied = p > 0
    p, q = p[occupied] / total, np.maximum(q[occupied], _ABSENT)
    return float(np.sum(p * np.log(p / (q / q.sum()))))
