"""A registered calibrator as an observer of torch's flows."""

from __future__ import annotations

import math
from typing import Any

import torch

from qbench import registry
from qbench.quant.pytorch.torch_ao import UniformQuantizationObserverBase


class CalibratorObserver(UniformQuantizationObserverBase):  # type: ignore[misc]  # torch is Any to mypy
    """Shows a calibrator, made with ``options``, the values that pass; its range for the levels of the observer (128
    with ``reduce_range``) gets scale and zero point by torch's rule."""

    def __init__(self, calibrator: str, options: tuple[tuple[str, Any], ...] = (), **arguments: Any) -> None:
        super().__init__(**arguments)
        self.calibrator = f"{calibrator} {options}"  # a text: what shares calibrated ranges compares it
        self.register_buffer("min_val", torch.tensor(math.inf))
        self.register_buffer("max_val", torch.tensor(-math.inf))
        calibrator_class = registry.load("calibrator", calibrator)
        self._calibrator = calibrator_class(asymmetric=self.qscheme != torch.per_tensor_symmetric, **dict(options))
        self._calibrator.levels = self.quant_max - self.quant_min + 1
        self._range: tuple[float, float] | None = None  # of what was seen so far; finding it takes milliseconds

    def forward(self, x: Any) -> Any:
        """The input as it came; its values are counted. Of values that are not finite only the ends are kept, which
        whoever calibrates refuses."""
        if x.numel():
            values = x.detach().float()
            low, high = torch.aminmax(values)
            self.min_val.copy_(torch.minimum(self.min_val, low))
            self.max_val.copy_(torch.maximum(self.max_val, high))
            self._range = None
            if bool(torch.isfinite(low) & torch.isfinite(high)):
                self._calibrator.add(values.cpu().numpy())
        return x

    def calculate_qparams(self) -> tuple[Any, Any]:
        """Scale and zero point of the range."""
        if not bool(torch.isfinite(self.min_val) & torch.isfinite(self.max_val)):
            return self._calculate_qparams(self.min_val, self.max_val)  # type: ignore[no-any-return]
        self._range = self._range or self._calibrator.range()
        low, high = (torch.tensor(end) for end in self._range)
        return self._calculate_qparams(low, high)  # type: ignore[no-any-return]
