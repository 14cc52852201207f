"""One network, two runtimes: variants that share a file or a recipe should give the same but for rounding.

Two runtimes round other values up, so the outputs of one int8 file differ by about what quantization itself costs, not
by much more. Where they do, one of them computes something else; the first layer that does is looked for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.backends.base import Backend, Inputs
from qbench.build import Artifact
from qbench.data import Data
from qbench.evaluate import load_predictions
from qbench.process import Limits, call
from qbench.record import OtherRuntime, Record

Array = NDArray[Any]
MOST_DECIBELS = 100.0
# Two independent quantization errors of one size differ by 3 dB more than either; as much again is no rounding.
MORE_DECIBELS = 6.0
# Of what differs by less, nobody sees anything: int8 by a hundredth of the signal, fp32 by a thousandth.
ENOUGH_INT8, ENOUGH_FP32 = 40.0, 60.0
# What a layer's output must differ by to be named: one value in 256 more or less is a noise of some 40 dB.
LAYER_DECIBELS = 30.0
_EXAMPLES = 8  # on which the first layer that differs is looked for


@dataclass(frozen=True, kw_only=True)
class Arm:
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


def same_network(one: Artifact, other: Artifact) -> bool:
    """Whether two variants of one network compute the same: one file, or one recipe of qbench's own in one flow."""
    if one.sha256 == other.sha256:
        return True
    (ours, recipe), (theirs, other_recipe) = ((each.mode, each.recipe) for each in (one, other))
    own = recipe.flow is not None and not recipe.framework_default
    return own and (ours, recipe) == (theirs, other_recipe)


def difference(one: Arm, other: Arm, data: Data, *, limits: Limits, progress: Callable[[str, float], None]) -> Any:
    """The ``Difference`` of two variants on the evaluation examples; None where rounding explains it.

    Raises ``CaseError`` where the process that looks does not end well.
    """
    return call(difference_here, one, other, data, limits=limits, progress=progress)


def difference_here(one: Arm, other: Arm, data: Data, *, progress: Callable[[str, float], None]) -> Difference | None:
    """``difference`` in this process."""
    progress("compare with another runtime", 0.9)
    ours, theirs = (load_predictions(arm.predictions)["outputs"] for arm in (one, other))
    if ours.shape != theirs.shape or ours.dtype.kind != "f":
        return None
    fp32 = [None if arm.fp32 is None else load_predictions(arm.fp32)["outputs"] for arm in (one, other)]
    kept = [_decibels(base, mine) for base, mine in zip(fp32, (ours, theirs), strict=True) if base is not None]
    better = max(kept, default=MOST_DECIBELS)
    between = min(_decibels(ours, theirs), _decibels(theirs, ours))
    if between >= (min(better - MORE_DECIBELS, ENOUGH_INT8) if kept else ENOUGH_FP32):
        return None
    layer = _first_layer(one, other, data, min(better - MORE_DECIBELS, LAYER_DECIBELS))
    return Difference(between_db=between, better_db=better, layer=layer)


def _decibels(reference: Array, other: Array) -> float:
    """The SQNR between -100 and 100 dB; of outputs of which one alone is NaN or infinite -100."""
    finite = np.isfinite(reference)
    if not np.array_equal(finite, np.isfinite(other)):
        return -MOST_DECIBELS
    known = reference[finite].astype(np.float64)
    signal, noise = float(np.square(known).sum()), float(np.square(known - other[finite]).sum())
    most = 10 ** (MOST_DECIBELS / 10)
    if noise * most <= signal:
        return MOST_DECIBELS
    return -MOST_DECIBELS if signal * most <= noise else float(10 * np.log10(signal / noise))


def _first_layer(one: Arm, other: Arm, data: Data, bar: float) -> str | None:
    """The first layer of two ONNX files whose outputs differ by more than ``bar`` allows, by halving: what differs at
    one layer differs behind it. Each is looked at alone, since runtimes compute otherwise what a caller reads."""
    if one.format != "onnx" or other.format != "onnx":
        return None
    from qbench.quant import onnx_file, onnx_tensors

    size = onnx_file.fixed_batch(one.file) or min(_EXAMPLES, data.evaluation_count)
    inputs = data.evaluation(0, min(size, data.evaluation_count))
    if len(inputs[0]) < size:
        return None
    layers = onnx_tensors.shared_layers(one.file, other.file)

    def differs(position: int) -> bool:
        tensor = layers[position].tensor
        return _decibels(*(_tensor(arm, tensor, inputs) for arm in (one, other))) < bar

    first, last = 0, len(layers)
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if differs(middle) else (middle + 1, last)
    return layers[first].name if first < len(layers) else None


def _tensor(arm: Arm, tensor: str, inputs: Inputs) -> Array:
    """One tensor of an ONNX file as a backend computes it, beside the file's own outputs."""
    from qbench.quant import onnx_tensors

    backend: Backend = registry.load("backend", arm.backend)
    with tempfile.TemporaryDirectory() as folder:
        file = onnx_tensors.with_first_output(arm.file, tensor, Path(folder) / "model.onnx")
        runner = backend.load(file, threads=1)
        with runner.context():
            return runner.outputs(runner(runner.prepare(inputs)))


def warnings(records: Iterable[Record]) -> tuple[str, ...]:
    """One sentence for each two variants whose outputs differ by more than rounding explains."""
    told: dict[frozenset[str], str] = {}
    for record in records:
        found = record.accuracy.other_runtime if record.accuracy else None
        if found is not None:
            own = f"{record.case.model}/{record.case.variant}"
            told.setdefault(frozenset((record.case.id, found.case)), _words(own, found))
    return tuple(dict.fromkeys(told.values()))


def _words(variant: str, found: OtherRuntime) -> str:
    where = f"; the first layer that differs is {found.layer}" if found.layer else ""
    better = f"{found.better_db:.1f} dB of fp32"
    kept = f", where the better of them keeps {better}" if found.better_db < MOST_DECIBELS else ""
    return (
        f"{variant} and {found.case} are the same network, and their outputs differ by more than rounding explains: "
        f"{found.between_db:.1f} dB{kept}{where}. One of the two runtimes computes something else: ship the one whose "
        "score holds, or keep that layer float (skip_layers)"
    )


def pairs(artifacts: Sequence[tuple[str, Artifact]]) -> list[tuple[str, str]]:
    """The names of every two variants of one network that compute the same on two backends."""
    return [
        (name, other_name)
        for i, (name, one) in enumerate(artifacts)
        for other_name, other in artifacts[i + 1 :]
        if one.backend != other.backend and same_network(one, other)
    ]
