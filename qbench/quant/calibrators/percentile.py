"""A share of the values is kept, the rest at the ends is clipped."""

from __future__ import annotations

from typing import ClassVar

from qbench.quant.calibrators.histogram import Counting


class Percentile(Counting):
    """Asymmetric: half of what is not kept is cut at each end; symmetric: all of it from the absolute values.

    ``percentile``: per cent of the values that are kept, above 50 to 100 (99.999 as in ONNX Runtime's calibrator).
    An end is right to the width of its bin, 1/1024 of its value at most; order and batches shift it no further.
    """

    name: ClassVar[str] = "percentile"

    def __init__(self, *, asymmetric: bool = True, percentile: float = 99.999) -> None:
        super().__init__(asymmetric=asymmetric)
        if not 50 < percentile <= 100:
            raise ValueError(f"percentile: expected per cent above 50 to 100, got {percentile}")
        self.percentile = percentile

    def range(self) -> tuple[float, float]:
        """The ends of what is kept. Raises ``ValueError`` before the first value."""
        bins = self._histogram.bins()
        last = int(bins.counts.sum()) - 1
        cut = (100 - self.percentile) / 100
        if self.asymmetric:
            return bins.value(round(cut / 2 * last)), bins.value(round((1 - cut / 2) * last))
        return self.mirrored(bins.folded().value(round((1 - cut) * last)))
