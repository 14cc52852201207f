"""The range that leaves the least squared error."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar

from qbench.quant.calibrators.bins import Bins
from qbench.quant.calibrators.histogram import Counting

FINE = 8  # bins to a step
ROUNDS = 4  # of moving one end after the other
_COARSE = [2 ** (-i / 4) for i in range(61)]  # shares of the whole range: down to 1 / 32768
_CLOSE = (
    [2 ** (i / 16) for i in range(-4, 5)],
    [2 ** (i / 64) for i in range(-3, 4)],
)  # around the best of them, in the end 1.1 % apart
Ends = Callable[[float], tuple[float, float]]


class LeastSquares(Counting):
    """Both ends as shares of the values' own: together first, then one after the other while the error falls (for a
    symmetric quantization together only). The error over the stored values is at most 1 % above the least that any
    other pair of the shares searched would leave; order and batches matter no further.
    """

    name: ClassVar[str] = "mse"

    def range(self) -> tuple[float, float]:
        """The best range found. Raises ``ValueError`` before the first value."""
        search = _Search(self._histogram.bins(), self.error)
        low, high = min(self._histogram.low, 0.0), max(self._histogram.high, 0.0)
        if low == high:
            return low, high
        down = up = search.share(lambda share: (low * share, high * share))
        for turn in range(ROUNDS if self.asymmetric and low < 0 < high else 0):
            before = down, up
            up = search.share(partial(_upper, low * down, high), up if turn else None)
            down = search.share(partial(_lower, low, high * up), down if turn else None)
            if (down, up) == before:
                break
        return low * down, high * up


def _upper(low: float, high: float, share: float) -> tuple[float, float]:
    return low, high * share


def _lower(low: float, high: float, share: float) -> tuple[float, float]:
    return low * share, high


class _Search:
    """Errors of ranges, each over bins that are fine enough for its step."""

    def __init__(self, bins: Bins, error: Callable[[Bins, float, float], float]) -> None:
        self._bins, self._error = bins, error
        self._coarse: dict[int, Bins] = {}

    def share(self, ends: Ends, near: float | None = None) -> float:
        """The share whose range has the least error, the largest of equals; ``near``: looked for around it only."""
        best = min(_COARSE, key=lambda share: self._of(ends(share))) if near is None else near
        for factors in _CLOSE:
            close = sorted({min(best * factor, 1.0) for factor in factors}, reverse=True)
            best = min(close, key=lambda share: self._of(ends(share)))
        return best

    def _of(self, ends: tuple[float, float]) -> float:
        octave = math.frexp((ends[1] - ends[0]) / 255)[1] - 1
        if octave not in self._coarse:
            self._coarse[octave] = self._bins.coarse(math.ldexp(1 / FINE, octave))
        return self._error(self._coarse[octave], *ends)
