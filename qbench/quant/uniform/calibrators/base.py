"""The contract of a calibrator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from numpy.typing import NDArray

from qbench.quant.uniform.qparams import QParams, asymmetric, symmetric

Array = NDArray[Any]


class Calibrator(ABC):
    """Sees each batch of one tensor once, keeps at most 256 KB, and gives its range.

    ``asymmetric`` says which quantization the range is chosen for. The result does not depend on how the values are
    cut into batches, nor on their order, beyond the tolerance that the class states.
    """

    name: ClassVar[str]

    def __init__(self, *, asymmetric: bool = True) -> None:
        self.asymmetric = asymmetric

    @abstractmethod
    def add(self, values: Array) -> None:
        """Takes a batch of any shape (float32). Raises ``ValueError`` for inf and NaN ("3 values are NaN or inf")."""

    @abstractmethod
    def range(self) -> tuple[float, float]:
        """Least and greatest value that is not clipped. Raises ``ValueError`` before the first batch."""

    def qparams(self) -> QParams:
        """Scale and offset for that range."""
        low, high = self.range()
        return asymmetric(low, high) if self.asymmetric else symmetric(low, high)
