"""The contract of a backend: what runs a model, how it builds an artifact, and how it runs one.

``missing`` and ``why_not`` are asked while planning, so a backend's module imports no heavy library at top
level. ``build`` and ``load`` run in child processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from qbench.models.base import Network, NetworkKind
from qbench.quant.recipe import Recipe

Array = NDArray[Any]
Inputs = tuple[Array, ...]


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One layer that multiplies and accumulates, in execution order, at batch size 1."""

    name: str
    operator: str
    macs: int
    int8: bool


@dataclass(frozen=True, kw_only=True)
class BuildJob:
    """Everything a backend needs to build a variant. ``calibration`` is preprocessed; ``labels`` belong to it
    (QAT trains on ``training`` inputs and labels instead)."""

    network: Network
    mode: str
    recipe: Recipe
    calibration: Inputs
    training: tuple[Inputs, Array] | None
    folder: Path
    progress: Callable[[str, float], None] = field(default=lambda text, share: None)


@dataclass(frozen=True, kw_only=True)
class Built:
    """What a build left in its folder: ``file`` is the one that is shipped and whose bytes count; ``layers``
    were read from that file while it ran; ``note`` says what a reader must know of this variant."""

    format: str
    file: str
    layers: tuple[Layer, ...]
    note: str | None = None


class Runner(ABC):
    """A loaded artifact. ``prepare`` is outside the timed region, calling is the timed region."""

    @abstractmethod
    def prepare(self, inputs: Inputs) -> Any:
        """The inputs in the runtime's own form."""

    @abstractmethod
    def __call__(self, prepared: Any) -> Any:
        """One inference."""

    @abstractmethod
    def outputs(self, result: Any) -> Array:
        """The first output of an inference as numpy, first axis = example."""

    @abstractmethod
    def observed(self) -> dict[str, Any]:
        """What is read back from the runtime itself: ``threads``, ``interop_threads``, ``engine`` or
        ``provider``, and what else it tells."""


class Backend(ABC):
    """What runs a model. ``runtime`` is the backend whose fp32 is the like-for-like baseline."""

    name: str
    runtime: str
    modes: tuple[str, ...]

    @abstractmethod
    def missing(self) -> str | None:
        """Why this backend cannot be used on this machine and how to mend it; None if it can."""

    @abstractmethod
    def why_not(self, *, mode: str, kind: NetworkKind) -> str | None:
        """Why this backend cannot build that mode from that kind of network; None if it can."""

    @abstractmethod
    def libraries(self) -> tuple[str, ...]:
        """The distributions whose versions decide what a build gives (part of the cache key)."""

    @abstractmethod
    def build(self, job: BuildJob) -> Built:
        """Builds, saves, reloads and proves one variant; raises ``BuildError`` or ``CaseSkipped``."""

    @abstractmethod
    def load(self, file: Path, *, threads: int) -> Runner:
        """The artifact, ready to run with that many threads; thread counts are set and read back."""
