"""What the torch flows (fx, eager, pt2e) share: how calibration data comes in, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from qbench.progress.callback import Progress
from qbench.quant.analysis.quantized_range import Ranges
from qbench.quant.recipe import Recipe
from qbench.record.schema import TargetFacts

# A fresh pass over the calibration batches: tuples of input tensors, first axis = example.
Batches: TypeAlias = Callable[[], Iterator[tuple[Any, ...]]]
# What decides a shared file beside network and calibration data, and who writes it -> the file.
Shared: TypeAlias = Callable[[Mapping[str, Any], Callable[[Path], None]], Path]


def ignore_progress(text: str, share: float) -> None:
    """Reports to nobody."""


@dataclass(frozen=True)
class QuantizeJob:
    """What a flow quantizes, and how: ``module`` is an fp32 network in eval mode (for ``convert_qat`` the trained
    fake-quantized one), which is copied; ``example`` a batch of 1, a tensor per input; ``progress`` gets a text and the
    share done. With ``shared``, what a build of the same network found on the same data is taken over. ``own``: the
    qconfigs of the network's author (``own_qconfig.OwnQConfigs``), where the recipe takes them; ``base``: the folder
    at which the paths of the recipe's own Python files start; ``more``: further examples like ``example``."""

    module: Any
    engine: str
    recipe: Recipe
    example: tuple[Any, ...]
    progress: Progress = ignore_progress
    shared: Shared | None = None
    own: Any = None
    base: Path | None = None
    more: tuple[tuple[Any, ...], ...] = ()

    @property
    def examples(self) -> tuple[tuple[Any, ...], ...]:
        """Several examples, each as a batch of 1."""
        return (self.example, *self.more)


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What is known of how a network became what runs, held by whatever comes of it. ``flow``: which of a recipe's made
    it (None: fp32, or somebody else). ``notes``: what a reader must know
    of it; ``float_reasons``: float layer -> why, where known. ``rewrites``: what the network was rewritten into before,
    ``rewrite_difference`` the largest difference of its outputs. ``layer_numbers``: of each layer its name, SQNR and
    cosine against fp32 (``quant.analysis.layer_error``). ``input_ranges``: of each model input the values that it can
    represent (``quant.analysis.quantized_range``), None where that is not known; empty where it is known of none.
    ``target``: what was done for other kinds of CPU, None where it is for this machine alone."""

    flow: str | None = None
    notes: tuple[str, ...] = ()
    float_reasons: Mapping[str, str] = field(default_factory=dict)
    rewrites: tuple[str, ...] = ()
    rewrite_difference: float | None = None
    layer_numbers: tuple[Mapping[str, Any], ...] = ()
    input_ranges: Ranges = ()
    target: TargetFacts | None = None

    def with_notes(self, *notes: str | None) -> Conversion:
        """The same with these notes in place of its own; None is no note."""
        return replace(self, notes=tuple(note for note in notes if note))


@dataclass(frozen=True, kw_only=True)
class Converted:
    """A module, made int8 or rewritten in fp32, and how; ``overflows``: whether sums of its kernels may overflow on
    this CPU."""

    module: Any
    conversion: Conversion = field(default_factory=Conversion)
    overflows: bool = False
