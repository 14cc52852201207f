"""A first parameter for modules whose own were all packed: code of their author asks it for device and dtype.

``next(self.parameters()).device`` stands in many forwards, and behind the properties ``device`` and ``dtype`` of
transformers' models, which ``torch.jit.trace`` reads, too. Packed weights are no parameters.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "qbench_first"


def keep_first_parameters(int8: Any, module: Any) -> None:
    """Gives each part of a converted network that had parameters in ``module``, is of the class that it was, and has
    none left, one without values; freezing a trace takes it away."""
    parts: dict[str, Any] = dict(int8.named_modules())
    for name, part in reversed(list(module.named_modules())):  # what lies inside comes first, and may be enough
        first, converted = next(part.parameters(), None), parts.get(name)
        if first is None or converted is None or type(converted) is not type(part):
            continue
        if next(converted.parameters(), None) is not None:
            continue
        empty = torch.empty(0, dtype=first.dtype, device=first.device)
        converted.register_parameter(NAME, torch.nn.Parameter(empty, requires_grad=False))
