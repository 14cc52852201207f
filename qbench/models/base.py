"""The contract of a model: a reference that travels between processes, and the network it loads.

A built-in model is a ``BuiltIn`` in the registry's kind ``model``. What a suite writes under ``source:`` names a
plug-in of the kind ``source``: a function ``load(reference) -> Network`` that runs in a child process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

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
    """A model that qbench brings: ``build(**args)`` returns an ``nn.Module`` with fresh weights."""

    name: str
    summary: str
    dataset: str
    build: Callable[..., Any]
    training: Training


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
        return "torch" if self.source is None else KIND_OF_SOURCE[self.source]


@dataclass(frozen=True, kw_only=True)
class Network:
    """A loaded fp32 network: ``module`` (``nn.Module`` or ``ScriptModule``, eval mode) for the torch kinds,
    ``path`` (an ``.onnx`` file) for ``onnx``."""

    kind: NetworkKind
    module: Any = None
    path: Path | None = None
