"""Stage 4, where a suite asks for layers: how much of what each layer gives on evaluation data its int8 form clips.

Looked at are fp32's own values at the places where int8 quantizes a layer's output: what lies outside the range that
calibration has found is clipped. One pass of fp32 serves all variants of a network.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from qbench import cache
from qbench import data as data_stage
from qbench.backends.base import Inputs
from qbench.backends.torch_runner import tensors
from qbench.build import Artifact
from qbench.data import Data
from qbench.datasets import base as dataset_contract
from qbench.inputs import Model, load_network
from qbench.process import Limits, call
from qbench.quant import dataflow, input_fit, input_range, output_range, per_layer
from qbench.quant.input_range import InputRange

Progress = Callable[[str, float], None]
Rows = tuple[Mapping[str, Any], ...]
_ROWS: TypeAdapter[dict[str, Rows]] = TypeAdapter(dict[str, Rows])
EXAMPLES, BATCH = 512, 8  # looked at, evenly from the first to the last; a network holds its activations for a batch


@dataclass(frozen=True, kw_only=True)
class Variant:
    """An int8 artifact, and the fp32 artifact of the same runtime."""

    artifact: Artifact
    fp32: Artifact

    @property
    def in_onnx(self) -> bool:
        """Whether both are ONNX files, one by fixed scales."""
        formats = (self.artifact.format, self.fp32.format)
        return formats == ("onnx", "onnx") and self.artifact.mode != "dynamic"

    @property
    def ranges(self) -> dict[str, tuple[InputRange, ...]]:
        """What each layer's output can represent, as the build has seen it."""
        return {
            one["name"]: tuple(InputRange(**values) for values in one["ranges"])
            for one in self.artifact.layer_numbers
            if one.get("ranges")
        }


def rows(
    variants: Mapping[str, Variant], model: Model, data: Data, *, root: Path, limits: Limits, progress: Progress
) -> dict[str, Rows]:
    """The layers of each variant of a network: the build's numbers, with ``clipped`` (0 to 1) where that is known.

    From the cache where they were looked at before. Raises ``BuildError`` where fp32 does not run on the examples,
    ``WorkerError``.
    """
    if not any(one.ranges or one.in_onnx for one in variants.values()):
        return {name: one.artifact.layer_numbers for name, one in variants.items()}

    def look(folder: Path) -> Mapping[str, Any]:
        found: Mapping[str, Any] = call(_rows_here, variants, model, data, limits=limits, progress=progress)
        return found

    key = {
        "variants": {name: [one.artifact.key, one.artifact.sha256, one.fp32.sha256] for name, one in variants.items()},
        "model": [model.weights_digest, model.code_digest],
        "data": data.evaluation_digest,
        "code": _code(),
    }
    entry = cache.fetch(root, "layers", cache.key_of(key), look, lambda entry: _kept(entry, variants))
    return _kept(entry, variants)


def _kept(entry: cache.Entry, variants: Mapping[str, Variant]) -> dict[str, Rows]:
    """The rows of an entry; raises ``ValueError`` where they are not rows of layers of these variants."""
    rows = _ROWS.validate_python(entry.facts)
    if set(rows) != set(variants) or not all(
        isinstance(row.get("name"), str) for each in rows.values() for row in each
    ):
        raise ValueError("it holds no layers of these variants")
    return rows


def _code() -> str:
    """The digest of the code that decides the numbers and is no part of an artifact's own key."""
    modules = (per_layer, dataflow, output_range, input_fit, input_range)
    return cache.source_digest(sys.modules[__name__], data_stage, dataset_contract, *modules)


def _rows_here(variants: Mapping[str, Variant], model: Model, data: Data, *, progress: Progress) -> dict[str, Rows]:
    progress("look for clipped values", 0.5)
    in_torch = {name: one for name, one in variants.items() if one.ranges}
    in_onnx = {name: one for name, one in variants.items() if one.in_onnx and not one.ranges}
    found: dict[str, Rows] = {name: one.artifact.layer_numbers for name, one in variants.items()}
    if in_torch:
        module = load_network(model.reference, model.weights).module
        known = [one.ranges for one in in_torch.values()]
        shares = per_layer.clipping(module, lambda: (tensors(one) for one in _batches(data, BATCH)), known)
        for name, share in zip(in_torch, shares, strict=True):
            found[name] = tuple({**one, "clipped": share.get(one["name"])} for one in found[name])
    for name, one in in_onnx.items():
        outputs = output_range.of_layers(one.artifact.file, one.fp32.file)
        batches = _batches(data, one.fp32.fixed_batch or BATCH)
        share = output_range.clipping(one.fp32.file, batches, [outputs])[0] if outputs else {}
        found[name] = tuple(output_range.as_rows(outputs, share))
    return found


def _batches(data: Data, size: int) -> Iterator[Inputs]:
    """Whole batches of evaluation examples, evenly spaced."""
    count = data.evaluation_count
    wanted = max(1, min(EXAMPLES, count) // size)
    for i in range(wanted):
        start = i * (count // wanted)
        yield data.evaluation(start, min(start + size, count))
