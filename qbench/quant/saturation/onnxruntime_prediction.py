"""What ONNX Runtime answers for an int8 file on a CPU that adds products of bytes in 16 bits (AVX2 without VNNI).

The file runs natively, cut behind the layers whose weights let a sum leave 16 bits; what those sums lose for the very
input is computed, and the outputs that change are put right before the next layer reads them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.saturation import onnxruntime_products, sections
from qbench.quant.saturation.layer_counter import LayerCounter, LayerSaturation
from qbench.quant.saturation.onnxruntime_products import IntegerLayer

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


class OnnxRuntimePredictor:
    """Answers of one file, batch by batch. ``layers``, ``unknown`` and ``saturated`` are those of a ``Prediction`` for
    the batches so far; ``fixed_batch`` is the only number of examples that the file takes (None: any)."""

    def __init__(self, file: Path, *, threads: int = 1) -> None:
        model = sections.optimize(file)
        onnxruntime_products.split_dynamic(model)
        constants = sections.read_constants(model)
        largest = onnxruntime_products.read_largest(model, constants)
        nodes = [onnxruntime_products.read_layer(node, constants, largest) for node in model.graph.node]
        names = [sections.name_layer(node, {}) for node in model.graph.node]
        self.unknown = {name: why for name, why in zip(names, nodes, strict=True) if isinstance(why, str)}
        layers = {place: layer for place, layer in enumerate(nodes) if isinstance(layer, IntegerLayer)}
        counters = {place: layer.counter() for place, layer in layers.items()}
        self._counters = tuple(counters.values())
        places = [place for place, counter in counters.items() if len(counter.pairs)]
        self._cut = [(layers[place], counters[place]) for place in places]
        kept = [(*layer.inputs, layer.output) for layer, _ in self._cut]
        self._sections = sections.cut(model, places, kept, functools.partial(sections.open_as_written, threads=threads))
        self._constants = {name: constants[name] for names in kept for name in names if name in constants}
        given = [value for value in model.graph.input if value.name not in constants]
        self._inputs = [value.name for value in given]
        self._output = model.graph.output[0].name
        self.fixed_batch = read_fixed_batch(given[0])
        self._examples, self.saturated = 0, set[int]()

    @property
    def layers(self) -> tuple[LayerSaturation, ...]:
        """What is known of each layer that adds in 16 bits, in the order of the graph."""
        return tuple(counter.report() for counter in self._counters)

    def __call__(self, inputs: tuple[Array, ...]) -> Array:
        """The first output for a batch."""
        tensors = dict(zip(self._inputs, inputs, strict=True))
        for section, cut in itertools.zip_longest(self._sections, self._cut):
            section.run(tensors)
            if cut is not None:
                layer, counter = cut
                self._correct(layer, counter, tensors, len(inputs[0]))
            for name in section.finished:
                del tensors[name]
        self._examples += len(inputs[0])
        output: Array = tensors[self._output]
        return output

    def _correct(self, layer: IntegerLayer, counter: LayerCounter, tensors: dict[str, Array], examples: int) -> None:
        """Puts into the tensors what a layer gives with sums of 16 bits."""
        known = {**self._constants, **tensors}
        values = [known.get(name) for name in layer.inputs]
        x, zero = tensors[layer.inputs[layer.operands.x]], values[layer.operands.x_zero]
        y = tensors[layer.output] = np.require(tensors[layer.output], requirements=("C", "W"))
        finish = functools.partial(onnxruntime_products.finish, layer, values)
        offset = 0 if zero is None else int(zero.reshape(-1)[0])
        rows = 1 if layer.product.kernel else y.size // (y.shape[-1] * examples)
        hit = counter.correct(_channels_first(layer, x), offset, _channels_first(layer, y), finish, rows=rows)
        self.saturated.update((hit + self._examples).tolist())


def _channels_first(layer: IntegerLayer, x: Array) -> Array:
    """A view of what a layer reads or gives, as ``pair_sums`` wants it."""
    if not layer.product.kernel:
        return x.reshape(-1, x.shape[-1])
    return np.moveaxis(x, -1, 1) if layer.channels_last else x


def read_fixed_batch(value: Any) -> int | None:
    """The only number of examples that a file takes; None: any."""
    shape = value.type.tensor_type.shape.dim
    return int(shape[0].dim_value) or None if shape else None
