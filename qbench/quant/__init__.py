"""The core quantization pipeline: from an fp32 network to a proven int8 artifact.

Public here is the tensor level (``affine``, ``scale_rules``), in numpy alone; the package itself imports nothing yet.

    >>> from qbench.quant import qparams, quantize_per_tensor
    >>> params = qparams(-1.0, 1.55, "quint8")
    >>> quantize_per_tensor([-1, 0, 1, 2], params.scale, params.zero_point, "quint8").int_repr()
    array([  0, 100, 200, 255], dtype=uint8)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qbench.quant.affine import (
        QINT8,
        QINT32,
        QUINT8,
        Dtype,
        Quantized,
        quantize_per_channel,
        quantize_per_tensor,
        representable,
    )
    from qbench.quant.scale_rules import RULES, ChannelQParams, QParams, qparams

__all__ = [
    "QINT8",
    "QINT32",
    "QUINT8",
    "RULES",
    "ChannelQParams",
    "Dtype",
    "QParams",
    "Quantized",
    "qparams",
    "quantize_per_channel",
    "quantize_per_tensor",
    "representable",
]


def __getattr__(name: str) -> Any:
    """A public name, once it is asked for: numpy costs what answers at once a third of its time."""
    if name not in __all__:
        raise AttributeError(f"module 'qbench.quant' has no attribute '{name}'")
    from qbench.quant import affine, scale_rules

    return getattr(affine if hasattr(affine, name) else scale_rules, name)


def __dir__() -> list[str]:
    """The public names beside what is loaded already."""
    return sorted({*globals(), *__all__})
