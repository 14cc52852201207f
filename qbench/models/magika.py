"""``magika``: what type a file is of, from 2,048 of its bytes; an ONNX model, (n, 2048) int32 -> (n, 214) shares.

A case where int8 is slower than fp32: its time goes into an embedding and a wide convolution over bytes.
Source: Fratantonio et al., "Magika: AI-powered content-type detection" (2024), arXiv:2409.13768.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from qbench.errors import ModelError
from qbench.models.base import BuiltIn

PACKAGE = "magika"
FILE = Path("models") / "standard_v3_3" / "model.onnx"


def weights() -> Path:
    """The ONNX file in the package; raises ``ModelError`` where this version carries another model."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = (spec.submodule_search_locations if spec else None) or []
    for folder in folders:
        if (Path(folder) / FILE).is_file():
            return Path(folder) / FILE
    raise ModelError(f"magika: its package has no {FILE}; pip install 'magika==1.0.3'")


MODEL = BuiltIn(
    name="magika",
    summary="the type of a file from its bytes, an ONNX model",
    kind="onnx",
    build=None,
    weights=weights,
    packages=(PACKAGE,),
    extra="zoo",
)
