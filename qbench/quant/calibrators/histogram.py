"""Counting values as they stream by: a histogram whose range grows without losing exactness.

A value x is counted by its sign and the upper bits of the float32 |x| + c, where c = R / 1024 and R is the power of
two above the largest value: 1024 bins below c, and in every doubling of |x| + c above. When R grows, c doubles, and
every edge of the wider bins is an edge of the narrower ones (while c is a multiple of every width, hence the 1024),
so that whole bins merge and nothing is shared out.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.affine import HIGH, LOW
from qbench.quant.calibrators.base import LEVELS, Calibrator
from qbench.quant.calibrators.bins import Bins
from qbench.quant.calibrators.extremes import CHUNK, find_extremes
from qbench.quant.scale_rules import amct_qparams

Array = NDArray[Any]
# R / c as a power of two: outliers of 1000 times the rest leave 4 bins to a step of the rest's own.
DOUBLINGS = 10
# As a power of two, at least DOUBLINGS, or bins do not merge: 4 to 8 bins to a step of 8 bits over [0, R], 8 to 16
# over [-R, R].
PER_DOUBLING = 10
SIDE = (DOUBLINGS << PER_DOUBLING) + 2  # bins of one sign: |x| + c exceeds R by c
_SHIFT = 23 - PER_DOUBLING  # of a float32's 23 bits of mantissa
# The exponent of R at least, so that c stays a normal float32. Smaller values share few bins, or one, which decides
# nothing: every range below 1e-5 is quantized as zeros (LEAST_SCALE).
_SMALLEST = -100
_ENDS = np.arange(SIDE + 1)
# The edges of one sign for c = 1.
_EDGES = np.ldexp(1.0 + (_ENDS & (1 << PER_DOUBLING) - 1) / (1 << PER_DOUBLING), _ENDS >> PER_DOUBLING) - 1.0
_scratch = threading.local()


class Histogram:
    """The counts of everything given to ``add``, in 164 KB. A bin is a 1024th of its values wide, near zero a 2**-20th
    of R, the power of two above the largest value, which is taken as 2**-100 at least. The counts do not depend on
    order and batches, but for a value within one float32 rounding of an edge, which may be counted in either of two
    neighbours."""

    def __init__(self) -> None:
        self.counts = np.zeros(
            2 * SIDE, np.int64
        )  # bin i of the positive values at SIDE + i, of the negative at SIDE - 1 - i
        self.exponent = _SMALLEST
        self.low, self.high = math.inf, -math.inf

    def add(self, values: Array) -> None:
        """Counts a batch of any shape. Raises ``ValueError`` for inf and NaN, and then counts nothing."""
        row, low, high = find_extremes(values)
        if not row.size:
            return
        self._grow(max(math.frexp(max(high, -low))[1], _SMALLEST))
        self.low, self.high = min(self.low, low), max(self.high, high)
        c = np.float32(math.ldexp(1.0, self.exponent - DOUBLINGS))
        with np.errstate(over="ignore"):  # the largest float32 + c is inf, whose bits are the next bin's
            for start in range(0, row.size, CHUNK):
                np.add.at(self.counts, _index_bins(row[start : start + CHUNK], c, signed=low < 0), 1)

    def bins(self) -> Bins:
        """The bins from the least to the greatest value. Raises ``ValueError`` before the first value."""
        if self.low > self.high:
            raise ValueError("no value was seen")
        edges = _EDGES * math.ldexp(1.0, self.exponent - DOUBLINGS)
        edges = np.concatenate([-edges[:0:-1], edges])
        filled = np.flatnonzero(self.counts)
        first, last = int(filled[0]), int(filled[-1])
        # A rounding at an edge may have put an end just outside the bin that it is counted in.
        ends = np.clip(edges[first : last + 2], self.low, self.high)
        ends[0], ends[-1] = self.low, self.high
        return Bins(edges=ends, counts=self.counts[first : last + 1].copy())

    def _grow(self, exponent: int) -> None:
        if exponent <= self.exponent:
            return
        doubled, self.exponent = exponent - self.exponent, exponent
        filled = np.flatnonzero(self.counts[SIDE:] | self.counts[SIDE - 1 :: -1])
        if not filled.size:
            return
        mantissa, power = np.frexp(np.ldexp(_EDGES[filled], -doubled) + 1.0)  # in units of the new c, exact
        target = ((power - 1) << PER_DOUBLING) + ((2 * mantissa - 1) * (1 << PER_DOUBLING)).astype(np.int64)
        merged = np.zeros_like(self.counts)
        np.add.at(merged, SIDE + target, self.counts[SIDE + filled])
        np.add.at(merged, SIDE - 1 - target, self.counts[SIDE - 1 - filled])
        self.counts = merged


def _index_bins(values: Array, c: np.float32, *, signed: bool) -> Array:
    """The bin of each value, as an index into ``counts``."""
    if not hasattr(_scratch, "arrays"):
        _scratch.arrays = np.empty(CHUNK, np.float32), np.empty(CHUNK, np.int32), np.empty(CHUNK, np.intp)
    size = values.size
    shifted, sign, indices_buffer = (array[:size] for array in _scratch.arrays)
    bits = shifted.view(np.int32)
    np.add(np.abs(values, out=shifted) if signed else values, c, out=shifted)
    np.right_shift(bits, _SHIFT, out=bits)
    first = c.view(np.int32) >> _SHIFT
    if signed:
        np.subtract(bits, first, out=bits)
        np.right_shift(values.view(np.int32), 31, out=sign)  # 0, or -1, which turns i into -1 - i
        np.bitwise_xor(bits, sign, out=bits)
        np.add(bits, SIDE, out=bits)
    else:
        np.subtract(bits, first - SIDE, out=bits)
    np.copyto(indices_buffer, bits)
    indices: Array = indices_buffer
    return indices


class Counting(Calibrator):
    """A calibrator that chooses its range from a histogram."""

    def __init__(self, *, asymmetric: bool = True) -> None:
        super().__init__(asymmetric=asymmetric)
        self._histogram = Histogram()

    def add(self, values: Array) -> None:
        """Takes a batch of any shape. Raises ``ValueError`` for inf and NaN, and then counts nothing of it."""
        self._histogram.add(values)

    def mirrored(self, reach: float) -> tuple[float, float]:
        """The range of a symmetric quantization with the scale reach / 127, within the values."""
        return max(self._histogram.low, -reach * -LOW / HIGH), min(self._histogram.high, reach)

    def error(self, bins: Bins, low: float, high: float) -> float:
        """The sum of squared errors of quantizing the range as this calibrator's ``qparams`` would, offset rounded, in
        ``levels``; of a small range that of the same one 2**n times as wide. By the scale of 1 that AMCT gives to what
        it takes for zeros no range is better than another, and torch's rule clips what lies outside."""
        exponent = math.frexp(high - low)[1]
        params = amct_qparams(math.ldexp(low, -exponent), math.ldexp(high, -exponent), symmetric=not self.asymmetric)
        wider = (LEVELS - 1) / (self.levels - 1)
        scale = math.ldexp(params.scale, exponent) * wider
        return bins.squared_error(scale, round((LOW - params.zero_point) / wider) * scale, self.levels)
