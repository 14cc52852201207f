"""What OpenVINO's own form, an .xml and a .bin beside it, says of itself; read as text, without OpenVINO."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

from qbench.errors import ModelError
from qbench.files import regular_file

MOST_BYTES = 1 << 28  # of the .xml, which holds no weights
_BYTES = ("i8", "u8", "i4", "u4", "nf4")
_LEAST = 256  # bytes of a constant that can be a weight


def find_weights(file: Path) -> Path:
    """The .bin that belongs to an .xml."""
    return file.with_suffix(".bin")


def list_quantized(file: Path) -> tuple[str, ...]:
    """The layers of a model that quantize, by name; empty for a float one. Raises ``ModelError`` for what is no
    model of OpenVINO's, and where its weights are not beside it."""
    return tuple(str(layer.get("name")) for layer in _read(file).iter("layer") if layer.get("type") == "FakeQuantize")


def has_compressed_weights(file: Path) -> bool:
    """Whether weights are stored in bytes, as nncf.compress_weights does; raises as ``list_quantized``."""
    constants = (layer.find("data") for layer in _read(file).iter("layer") if layer.get("type") == "Const")
    return any(
        data is not None and data.get("element_type") in _BYTES and int(data.get("size", "0")) >= _LEAST
        for data in constants
    )


def _read(file: Path) -> ElementTree.Element:
    try:
        root = ElementTree.fromstring(regular_file.read_bytes(file, MOST_BYTES))
    except (ElementTree.ParseError, OSError, ValueError, LookupError) as error:
        raise ModelError(f"{file}: cannot read this .xml of OpenVINO's: {error}") from error
    if root.tag != "net" or root.find("layers") is None:
        raise ModelError(f"{file}: this .xml is no model of OpenVINO's; openvino.save_model(model, path) writes one")
    weights = find_weights(file)
    if (why := regular_file.explain_unusable(weights)) is not None:
        raise ModelError(f"{file}: its weights are not beside it: {why}: {weights}")
    return root
