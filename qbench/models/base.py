"""The contract of a model: a reference that travels between processes, and the network it loads.

A built-in model is a ``BuiltIn`` in the registry's kind ``model``. What a suite writes under ``source:`` names a
plug-in of the kind ``source``: a function ``load(reference) -> Network`` that runs in a child process.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from qbench import registry

NetworkKind = Literal["torch", "torchscript", "onnx"]
# What each `source:` key loads, so that a plan can be made without loading anything.
KIND_OF_SOURCE: dict[str, NetworkKind] = {"python": "torch", "onnx": "onnx", "torchscript": "torchscript"}


@dataclass(frozen=True, kw_only=True)
class Training:
    """How a built-in model's fp32 weights are made from a data set: seeded, on one thread."""

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float = 0.0
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class BuiltIn:
    """A model that qbench brings. ``build(**args)`` returns an ``nn.Module``; of an ONNX model None, and its file is
    ``weights()``.

    Its fp32 weights are made by ``training`` on ``dataset``, or come with a package: ``weights()`` is then the path of
    a state dict (``.pth``, ``.safetensors``) or of the ``.onnx`` file. ``packages`` are the names it imports beyond
    qbench's own dependencies, ``extra`` the extra that installs them.
    """

    name: str
    summary: str
    build: Callable[..., Any] | None
    kind: NetworkKind = "torch"
    dataset: str | None = None
    training: Training | None = None
    weights: Callable[[], Path] | None = None
    packages: tuple[str, ...] = ()
    extra: str | None = None

    def missing(self) -> str | None:
        """Which packages it lacks here and what installs them; None if it can be used. Imports none of them."""
        absent = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if not absent:
            return None
        return f"{self.name} needs {' and '.join(absent)}; pip install 'qbench[{self.extra}]'"


@dataclass(frozen=True, kw_only=True)
class ModelReference:
    """Which network a suite means. ``source`` is None for a built-in; else a key of the registry's kind
    ``source`` with ``path`` absolute, ``attribute`` the factory's name in a Python file, ``args`` its keyword
    arguments; ``weights`` an absolute path to safetensors or a state-dict ``.pt``, or None."""

    name: str
    source: str | None = None
    path: Path | None = None
    attribute: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | None = None

    @property
    def kind(self) -> NetworkKind:
        """What loading it will give."""
        if self.source is not None:
            return KIND_OF_SOURCE[self.source]
        builtin: BuiltIn = registry.load("model", self.name)
        return builtin.kind

    def missing(self) -> str | None:
        """Why it cannot be loaded here and what to do; None if it can. A file of the user's is looked for later."""
        if self.source is not None:
            return None
        builtin: BuiltIn = registry.load("model", self.name)
        return builtin.missing()


@dataclass(frozen=True, kw_only=True)
class Network:
    """A loaded fp32 network: ``module`` (``nn.Module`` or ``ScriptModule``, eval mode) for the torch kinds,
    ``path`` (an ``.onnx`` file) for ``onnx``."""

    kind: NetworkKind
    module: Any = None
    path: Path | None = None
