"""What the torch flows (fx, eager, pt2e) share: how calibration data comes in, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from qbench.progress.callback import Progress
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
    at which the paths of the recipe's own Python files start."""

    module: Any
    engine: str
    recipe: Recipe
    example: tuple[Any, ...]
    progress: Progress = ignore_progress
    shared: Shared | None = None
    own: Any = None
    base: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Converted:
    """An int8 module; ``float_reasons``: layer name -> why it stays float, where that is known; ``notes``: what a
    reader must know of it; ``overflows``: whether sums of its kernels may overflow on this CPU; ``target``: what was
    done for other CPUs, None where it is for this one alone."""

    module: Any
    float_reasons: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    overflows: bool = False
    target: TargetFacts | None = None
