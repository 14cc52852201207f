"""config.json <-> Config: what is quantized and how, in AMCT's form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qbench.quant.onnx.formats import text_file
from qbench.quant.onnx.settings import Config

if TYPE_CHECKING:
    from qbench.quant.onnx.formats.rules import Rules
    from qbench.quant.onnx.graph.graph import Graph


def default(graph: Graph, rules: Rules | None = None) -> Config:
    """The configuration of a prepared graph: every layer that can be quantized, as ``rules`` have it, and the inputs
    that ONNX Runtime needs quantized to run them in int8. Raises ``UsageError`` for layers to skip that are not
    there, and where nothing is left."""
    from qbench.quant.onnx.formats import defaults

    return defaults.default(graph, rules)


def read(file: Path) -> Config:
    """A config.json, AMCT's or qbench's. Raises ``UsageError`` with everything that is wrong in it."""
    text = text_file.read(file, "configuration", "no such configuration; qbench onnx config writes one")
    return loads(text, name=str(file))


def loads(text: str, *, name: str = "config.json") -> Config:
    """The configuration in a text; ``name`` stands before every problem."""
    from qbench.quant.onnx.formats import config_json

    return config_json.loads(text, name)


def dumps(config: Config) -> str:
    """The configuration as JSON, every parameter written out. Raises ``UsageError`` for a layer whose name is a key
    of the file."""
    from qbench.quant.onnx.formats import config_json

    return config_json.dumps(config)


def write(config: Config, file: Path) -> None:
    """Writes a configuration whole or not at all, mode 0640."""
    text_file.write(dumps(config), file)
