"""What ONNX Runtime answers for an int8 file on a CPU that adds products of bytes in 16 bits (AVX2 without VNNI).

The file runs natively, cut behind the layers whose weights let a sum leave 16 bits; what those sums lose for the very
input is computed, and the outputs that change are put right before the next layer reads them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.saturation import onnxruntime_products, sections
from qbench.quant.saturation.layer_counter import LayerCounter, LayerSaturation
from qbench.quant.saturation.onnxruntime_products import IntegerLayer
from qbench.quant.saturation.section_predictor import SectionPredictor

Array = NDArray[Any]
_EXAMPLES = 8  # run at a time: their tensors stay small


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The first output for each example, as it will be; the layers that add in 16 bits; ``examples``: which of them had
    a saturated sum; ``unknown``: node -> why what it gives there is not predicted."""

    outputs: Array
    layers: tuple[LayerSaturation, ...]
    saturated: Array
    unknown: dict[str, str]


def predict_outputs(file: Path, inputs: tuple[Array, ...], *, threads: int = 1) -> Prediction:
    """The answers that ONNX Runtime gives for a file on AVX2, and where its sums saturate. ``inputs``: one array of
    examples for each input of the file. Without a layer that can saturate these are its native answers."""
    predictor = OnnxRuntimePredictor(file, threads=threads)
    outputs = [predictor(tuple(part)) for part in _batches(inputs, predictor.fixed_batch)]
    return Prediction(
        outputs=np.concatenate(outputs),
        layers=predictor.layers,
        saturated=np.array(sorted(predictor.saturated), np.int64),
        unknown=predictor.unknown,
    )


def _batches(inputs: tuple[Array, ...], fixed: int | None) -> Iterator[tuple[Array, ...]]:
    size = fixed or _EXAMPLES
    for start in range(0, len(inputs[0]), size):
        yield tuple(array[start : start + size] for array in inputs)


class OnnxRuntimePredictor(SectionPredictor[IntegerLayer]):
    """Answers of ONNX Runtime for one file."""

    def __init__(self, file: Path, *, threads: int = 1) -> None:
        model = sections.optimize(file)
        onnxruntime_products.split_dynamic(model)
        constants = sections.read_constants(model)
        largest = onnxruntime_products.read_largest(model, constants)
        parsed = [onnxruntime_products.read_layer(node, constants, largest) for node in model.graph.node]
        names = [sections.name_layer(node, {}) for node in model.graph.node]
        super().__init__(model, parsed, names, functools.partial(sections.open_as_written, threads=threads))

    def _reads(self, layer: IntegerLayer) -> Sequence[str]:
        return layer.inputs

    def _correct(self, layer: IntegerLayer, counter: LayerCounter, tensors: dict[str, Array], examples: int) -> Array:
        operands = {**self._constants, **tensors}
        values = [operands.get(name) for name in layer.inputs]
        x, zero = tensors[layer.inputs[layer.operands.x]], values[layer.operands.x_zero]
        y = tensors[layer.output] = np.require(tensors[layer.output], requirements=("C", "W"))
        finish = functools.partial(onnxruntime_products.finish, layer, values)
        offset = 0 if zero is None else int(zero.reshape(-1)[0])
        rows = 1 if layer.product.kernel else y.size // (y.shape[-1] * examples)
        return counter.correct(_channels_first(layer, x), offset, _channels_first(layer, y), finish, rows=rows)


def _channels_first(layer: IntegerLayer, x: Array) -> Array:
    """A view of what a layer reads or gives, as ``pair_sums`` wants it."""
    if not layer.product.kernel:
        return x.reshape(-1, x.shape[-1])
    return np.moveaxis(x, -1, 1) if layer.channels_last else x
