"""Stage 4, where a suite asks for layers: how much of what each layer gives on evaluation data its int8 form clips.

Looked at are fp32's own values at the places where int8 quantizes a layer's output: what lies outside the range that
calibration has found is clipped. One pass of fp32 serves all variants of a network.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from qbench import data as data_stage
from qbench.backends.base import Inputs
from qbench.backends.torch_runner import tensors
from qbench.build import Artifact
from qbench.cache import store
from qbench.data import Data
from qbench.datasets import base as dataset_contract
from qbench.network import Model, load_network
from qbench.process.child_process import Limits, call
from qbench.progress.callback import Progress
from qbench.quant.analysis import activation_trace, input_drift, layer_error, onnx_output_range, quantized_range
from qbench.quant.analysis.quantized_range import InputRange

Rows = tuple[Mapping[str, Any], ...]
_ROWS: TypeAdapter[dict[str, Rows]] = TypeAdapter(dict[str, Rows])
EXAMPLES, BATCH = 512, 8  # looked at, evenly from the first to the last; a network holds its activations for a batch


@dataclass(frozen=True, kw_only=True)
class ComparedVariant:
    """An int8 artifact, and the fp32 artifact of the same runtime."""

    artifact: Artifact
    fp32: Artifact

    @property
    def in_onnx(self) -> bool:
        """Whether both are ONNX files, one by fixed scales."""
        formats = (self.artifact.built.format, self.fp32.built.format)
        return formats == ("onnx", "onnx") and self.artifact.mode != "dynamic"

    @property
    def ranges(self) -> dict[str, tuple[InputRange, ...]]:
        """What each layer's output can represent, as the build has seen it."""
        return {
            layer["name"]: tuple(InputRange(**values) for values in layer["ranges"])
            for layer in self.artifact.built.conversion.layer_numbers
            if layer.get("ranges")
        }


def rows(
    variants: Mapping[str, ComparedVariant], model: Model, data: Data, *, root: Path, limits: Limits, progress: Progress
) -> dict[str, Rows]:
    """The layers of each variant of a network: the build's numbers, with ``clipped`` (0 to 1) where that is known.

    From the cache where they were looked at before. Raises ``BuildError`` where fp32 does not run on the examples,
    ``WorkerError``.
    """
    if not any(variant.ranges or variant.in_onnx for variant in variants.values()):
        return {name: variant.artifact.built.conversion.layer_numbers for name, variant in variants.items()}

    def look(folder: Path) -> Mapping[str, Any]:
        numbers: Mapping[str, Any] = call(_rows_here, variants, model, data, limits=limits, progress=progress)
        return numbers

    key = {
        "variants": {
            name: [variant.artifact.key, variant.artifact.sha256, variant.fp32.sha256]
            for name, variant in variants.items()
        },
        "model": [model.weights_digest, model.code_digest],
        "data": data.evaluation_digest,
        "code": _code(),
    }
    entry = store.fetch(root, "layers", store.key_of(key), look, lambda entry: _kept(entry, variants))
    return _kept(entry, variants)


def _kept(entry: store.Entry, variants: Mapping[str, ComparedVariant]) -> dict[str, Rows]:
    """The rows of an entry; raises ``ValueError`` where they are not rows of layers of these variants."""
    rows = _ROWS.validate_python(entry.facts)
    if set(rows) != set(variants) or not all(
        isinstance(row.get("name"), str) for each in rows.values() for row in each
    ):
        raise ValueError("it holds no layers of these variants")
    return rows


def _code() -> str:
    """The digest of the code that decides the numbers and is no part of an artifact's own key."""
    modules = (layer_error, activation_trace, onnx_output_range, input_drift, quantized_range)
    return store.source_digest(sys.modules[__name__], data_stage, dataset_contract, *modules)


def _rows_here(
    variants: Mapping[str, ComparedVariant], model: Model, data: Data, *, progress: Progress
) -> dict[str, Rows]:
    progress("look for clipped values", 0.5)
    in_torch = {name: variant for name, variant in variants.items() if variant.ranges}
    in_onnx = {name: variant for name, variant in variants.items() if variant.in_onnx and not variant.ranges}
    numbers: dict[str, Rows] = {
        name: variant.artifact.built.conversion.layer_numbers for name, variant in variants.items()
    }
    if in_torch:
        module = load_network(model.reference, model.weights).module
        ranges = [variant.ranges for variant in in_torch.values()]
        shares = layer_error.measure_clipping(
            module, lambda: (tensors(batch) for batch in _batches(data, BATCH)), ranges
        )
        for name, share in zip(in_torch, shares, strict=True):
            numbers[name] = tuple({**layer, "clipped": share.get(layer["name"])} for layer in numbers[name])
    for name, variant in in_onnx.items():
        outputs = onnx_output_range.find_layer_ranges(variant.artifact.file, variant.fp32.file)
        batches = _batches(data, variant.fp32.built.fixed_batch or BATCH)
        share = onnx_output_range.measure_clipping(variant.fp32.file, batches, [outputs])[0] if outputs else {}
        numbers[name] = tuple(onnx_output_range.as_rows(outputs, share))
    return numbers


def _batches(data: Data, size: int) -> Iterator[Inputs]:
    """Whole batches of evaluation examples, evenly spaced."""
    count = data.evaluation_count
    number = max(1, min(EXAMPLES, count) // size)
    for i in range(number):
        start = i * (count // number)
        yield data.evaluation(start, min(start + size, count))
