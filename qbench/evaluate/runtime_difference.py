"""One network, two runtimes: variants that share a file or a recipe should give the same but for rounding.

Two runtimes round other values up, so the outputs of one int8 file differ by about what quantization itself costs, not
by much more. Where they do, one of them computes something else; the first layer that does is looked for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from qbench import registry
from qbench.backends.base import Backend, Inputs
from qbench.build import Artifact
from qbench.data import Data
from qbench.evaluate.predictions import load_predictions
from qbench.process.child_process import Limits, call
from qbench.progress.callback import Progress
from qbench.quant.sqnr import MOST_DECIBELS, measure_sqnr

Array = NDArray[Any]
# Two independent quantization errors of one size differ by 3 dB more than either; as much again is no rounding.
MORE_DECIBELS = 6.0
# Of what differs by less, nobody sees anything: int8 by a hundredth of the signal, fp32 by a thousandth.
ENOUGH_INT8, ENOUGH_FP32 = 40.0, 60.0
# What a layer's output must differ by to be named: one value in 256 more or less is a noise of some 40 dB.
LAYER_DECIBELS = 30.0
_EXAMPLES = 8  # on which the first layer that differs is looked for


@dataclass(frozen=True, kw_only=True)
class RuntimeVariant:
    """One of two variants: its predictions, those of its fp32 (None for fp32 itself)."""

    backend: str
    file: Path
    format: str
    predictions: Path
    fp32: Path | None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The SQNR of one variant's outputs against the other's, and that of the better one against its fp32, in dB;
    ``layer``: the first that differs, None where it was not found."""

    between_db: float
    better_db: float
    layer: str | None


def same_network(first: Artifact, second: Artifact) -> bool:
    """Whether two variants of one network compute the same: one file, or one recipe of qbench's own in one flow."""
    if first.sha256 == second.sha256:
        return True
    (ours, recipe), (theirs, other_recipe) = ((each.mode, each.recipe) for each in (first, second))
    own = recipe.flow is not None and not recipe.framework_default
    return own and (ours, recipe) == (theirs, other_recipe)


def difference(first: RuntimeVariant, second: RuntimeVariant, data: Data, *, limits: Limits, progress: Progress) -> Any:
    """The ``Difference`` of two variants on the evaluation examples; None where rounding explains it.

    Raises ``CaseError`` where the process that looks does not end well.
    """
    return call(difference_here, first, second, data, limits=limits, progress=progress)


def list_differing(
    variants: Sequence[tuple[RuntimeVariant, RuntimeVariant]], *, limits: Limits, progress: Progress
) -> list[int]:
    """The positions of the pairs whose outputs differ by more than rounding explains, whose ``difference`` is worth a
    process of its own. One process looks at all of them.

    Raises ``CaseError`` where that one does not end well.
    """
    positions: list[int] = call(list_differing_here, tuple(variants), limits=limits, progress=progress)
    return positions


def list_differing_here(variants: Sequence[tuple[RuntimeVariant, RuntimeVariant]], *, progress: Progress) -> list[int]:
    """``list_differing`` in this process."""
    progress("compare runtimes", 0.5)
    return [position for position, pair in enumerate(variants) if _measure(*pair) is not None]


def difference_here(
    first: RuntimeVariant, second: RuntimeVariant, data: Data, *, progress: Progress
) -> Difference | None:
    """``difference`` in this process."""
    progress("compare with another runtime", 0.9)
    measured = _measure(first, second)
    if measured is None:
        return None
    between, better = measured
    layer = _first_layer(first, second, data, min(better - MORE_DECIBELS, LAYER_DECIBELS))
    return Difference(between_db=between, better_db=better, layer=layer)


def _measure(first: RuntimeVariant, second: RuntimeVariant) -> tuple[float, float] | None:
    """The SQNR between the two, and that of the better one; None where rounding explains how they differ."""
    ours, theirs = (load_predictions(variant.predictions)["outputs"] for variant in (first, second))
    if ours.shape != theirs.shape or ours.dtype.kind != "f":
        return None
    fp32 = [None if variant.fp32 is None else load_predictions(variant.fp32)["outputs"] for variant in (first, second)]
    decibels = [measure_sqnr(base, mine) for base, mine in zip(fp32, (ours, theirs), strict=True) if base is not None]
    better = max(decibels, default=MOST_DECIBELS)
    between = min(measure_sqnr(ours, theirs), measure_sqnr(theirs, ours))
    if between >= (min(better - MORE_DECIBELS, ENOUGH_INT8) if decibels else ENOUGH_FP32):
        return None
    return between, better


def _first_layer(ours: RuntimeVariant, theirs: RuntimeVariant, data: Data, least_decibels: float) -> str | None:
    """The first layer of two ONNX files whose outputs are less alike than ``least_decibels``, by halving: what differs
    at one layer differs behind it. Each is looked at alone, since runtimes compute otherwise what a caller reads."""
    if ours.format != "onnx" or theirs.format != "onnx":
        return None
    from qbench.quant.analysis import onnx_tensors
    from qbench.quant.artifacts import onnx_file

    size = onnx_file.fixed_batch(ours.file) or min(_EXAMPLES, data.evaluation_count)
    inputs = data.evaluation(0, min(size, data.evaluation_count))
    if len(inputs[0]) < size:
        return None
    layers = onnx_tensors.shared_layers(ours.file, theirs.file)

    def differs(position: int) -> bool:
        tensor = layers[position].tensor
        return measure_sqnr(*(_tensor(variant, tensor, inputs) for variant in (ours, theirs))) < least_decibels

    first, last = 0, len(layers)
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if differs(middle) else (middle + 1, last)
    return layers[first].name if first < len(layers) else None


def _tensor(variant: RuntimeVariant, tensor: str, inputs: Inputs) -> Array:
    """One tensor of an ONNX file as a backend computes it, beside the file's own outputs."""
    from qbench.quant.analysis import onnx_tensors

    backend: Backend = registry.load("backend", variant.backend)
    with tempfile.TemporaryDirectory() as folder:
        file = onnx_tensors.with_first_output(variant.file, tensor, Path(folder) / "model.onnx")
        runner = backend.load(file, threads=1)
        with runner.context():
            return runner.outputs(runner(runner.prepare(inputs)))


def pairs(artifacts: Sequence[tuple[str, Artifact]]) -> list[tuple[str, str]]:
    """The names of every two variants of one network that compute the same on two backends."""
    return [
        (name, other_name)
        for i, (name, artifact) in enumerate(artifacts)
        for other_name, other in artifacts[i + 1 :]
        if artifact.backend != other.backend and same_network(artifact, other)
    ]
