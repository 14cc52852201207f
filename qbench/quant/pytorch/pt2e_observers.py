"""The recipe's calibrators as torchao takes observers, whose base class is another than torch.ao's."""

from __future__ import annotations

from typing import Any

from qbench.quant.pytorch import qconfig
from qbench.quant.recipe import Recipe


def adapt_observer(recipe: Recipe) -> Any:
    """The recipe's calibrator (``qconfig.activation_observer``) as torchao takes it, whose base class is another."""
    import torch
    from torchao.quantization.pt2e import ObserverBase

    constructor = qconfig.activation_observer(recipe)

    class Adapted(ObserverBase):  # type: ignore[misc]  # torchao is Any to mypy here
        """Of the levels of unsigned bytes; of signed ones, the same scale with its zero 128 lower."""

        def __init__(self, dtype: Any, quant_min: int, quant_max: int, qscheme: Any, is_dynamic: bool = False) -> None:
            super().__init__(dtype=dtype, is_dynamic=is_dynamic)
            self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
            self.below = quant_min if dtype == torch.int8 else 0
            # Levels that are named, even the whole 0 to 255, count as a custom range: zero is then at 127, not at 128.
            top = quant_max - self.below
            levels = {} if top == 255 else {"quant_min": 0, "quant_max": top}
            self.inner = constructor(dtype=torch.quint8, qscheme=qscheme, **levels)

        def forward(self, x: Any) -> Any:
            return self.inner(x)

        def calculate_qparams(self) -> Any:
            scale, zero_point = self.inner.calculate_qparams()
            return scale, zero_point + self.below

    return Adapted
