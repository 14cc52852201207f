"""The contract of a calibrator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from numpy.typing import NDArray

from qbench.quant.recipe import FLOWS
from qbench.quant.scale_rules import QParams, amct_qparams

Array = NDArray[Any]
LEVELS = 256


class Calibrator(ABC):
    """Sees each batch of one tensor once, keeps at most 256 KB, and gives its range.

    Registered under its ``name``, it can be named in a suite, in a configuration of ``qbench onnx`` and on its command
    line; the torch flows use it through ``CalibratorObserver`` (but for ``moving_average``, where they take torch's).
    Its other keyword arguments, with their defaults, are its options.

    ``asymmetric`` says which quantization the range is chosen for. The result does not depend on how the values are
    cut into batches, nor on their order, beyond the tolerance that the class states.
    """

    name: ClassVar[str]
    # The flows in which a recipe may name it (``Recipe.flow``); a plan skips the static variants of other flows.
    flows: ClassVar[tuple[str, ...]] = FLOWS
    # How many the quantization has that the range is chosen for; a flow with fewer says so before the first batch.
    levels: int = LEVELS

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
        return amct_qparams(low, high, symmetric=not self.asymmetric)
