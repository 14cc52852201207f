"""What ONNX Runtime answers for an int8 file on a CPU that adds products of bytes in 16 bits (AVX2 without VNNI).

The file runs natively, cut behind the layers whose weights let a sum leave 16 bits; what those sums lose for the very
input is computed, and the outputs that change are put right before the next layer reads them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.saturation import onnxruntime_products, pair_sums, sections
from qbench.quant.saturation.onnxruntime_products import IntegerLayer
from qbench.quant.saturation.pair_sums import Lost, Pairs

Array = NDArray[Any]
_EXAMPLES = 8  # run at a time: their tensors stay small
_SUMS = 1 << 16  # factors of exact sums gathered at a time


@dataclass(frozen=True, kw_only=True)
class LayerSaturation:
    """A layer that adds in 16 bits. ``pairs``: how many pairs of weights could leave them with the largest inputs (0:
    its sums are exact for every input); over the examples that were run: how many ``sums`` it made, how many were
    ``saturated`` in how many ``outputs`` and ``examples``, and the ``largest_excess`` that one lost; ``rounded``: how
    many of those outputs differ natively from what is computed for them, so that the prediction may be off by one
    rounding."""

    name: str
    operator: str
    pairs: int
    sums: int = 0
    saturated: int = 0
    outputs: int = 0
    examples: int = 0
    largest_excess: int = 0
    rounded: int = 0


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
    predictor = Predictor(file, threads=threads)
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


@dataclass(kw_only=True)
class _Counted:
    """A layer with what was counted of it."""

    layer: IntegerLayer
    pairs: Pairs
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, **counts: int) -> None:
        for name, count in counts.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def report(self) -> LayerSaturation:
        return LayerSaturation(name=self.layer.name, operator=self.layer.operator, pairs=len(self.pairs), **self.counts)


class Predictor:
    """Answers of one file, batch by batch. ``layers``, ``unknown`` and ``saturated`` are those of a ``Prediction`` for
    the batches so far; ``fixed_batch`` is the only number of examples that the file takes (None: any)."""

    def __init__(self, file: Path, *, threads: int = 1) -> None:
        model = sections.optimize(file)
        onnxruntime_products.split_dynamic(model)
        constants = sections.read_constants(model)
        self.unknown: dict[str, str] = {}
        self._all: list[_Counted] = []
        places: list[int] = []
        for place, node in enumerate(model.graph.node):
            layer = onnxruntime_products.read_layer(node, constants)
            if isinstance(layer, str):
                self.unknown[node.name or node.output[0]] = layer
            elif layer is not None:
                self._all.append(_Counted(layer=layer, pairs=pair_sums.find_pairs(layer.product)))
                if len(self._all[-1].pairs):
                    places.append(place)
        self._cut = [counted for counted in self._all if len(counted.pairs)]
        kept = [(*counted.layer.inputs, counted.layer.output) for counted in self._cut]
        self._sections = sections.cut(model, places, kept, threads=threads)
        self._constants = {name: constants[name] for names in kept for name in names if name in constants}
        given = [value for value in model.graph.input if value.name not in constants]
        self._inputs = [value.name for value in given]
        self._output = model.graph.output[0].name
        self.fixed_batch = _fixed_batch(given[0])
        self._examples, self.saturated = 0, set[int]()

    @property
    def layers(self) -> tuple[LayerSaturation, ...]:
        """What is known of each layer that adds in 16 bits, in the order of the graph."""
        return tuple(counted.report() for counted in self._all)

    def __call__(self, inputs: tuple[Array, ...]) -> Array:
        """The first output for a batch."""
        tensors = dict(zip(self._inputs, inputs, strict=True))
        for section, counted in itertools.zip_longest(self._sections, self._cut):
            section.run(tensors)
            if counted is not None:
                self._correct(counted, tensors, len(inputs[0]))
            for name in section.finished:
                del tensors[name]
        self._examples += len(inputs[0])
        output: Array = tensors[self._output]
        return output

    def _correct(self, counted: _Counted, tensors: dict[str, Array], examples: int) -> None:
        """Puts into the tensors what a layer gives with sums of 16 bits."""
        layer, native = counted.layer, tensors[counted.layer.output]
        x = _channels_first(layer, tensors[layer.inputs[layer.operands.x]])
        lost = pair_sums.find_lost(layer.product, counted.pairs, x)
        counted.add(sums=native.size * layer.product.pairs_per_output, saturated=lost.saturated)
        if not len(lost.place):
            return
        tensors[layer.output] = self._corrected(counted, tensors, x, lost)
        hit = np.flatnonzero(np.bincount(lost.place // (native.size // (len(layer.weight) * examples))))
        counted.add(examples=len(hit))
        counted.counts["largest_excess"] = max(counted.counts.get("largest_excess", 0), lost.largest)
        self.saturated.update((hit + self._examples).tolist())

    def _values(self, counted: _Counted, tensors: dict[str, Array]) -> list[Array | None]:
        """The inputs of a layer, constant and computed."""
        known = {**self._constants, **tensors}
        return [known.get(name) for name in counted.layer.inputs]

    def _corrected(self, counted: _Counted, tensors: dict[str, Array], x: Array, lost: Lost) -> Array:
        """A layer's output, changed where sums lose something."""
        layer, values, y = counted.layer, self._values(counted, tensors), tensors[counted.layer.output]
        y = y if y.flags.writeable else y.copy()
        zero = values[layer.operands.x_zero]
        exact = _exact_sums(layer, x, 0 if zero is None else int(zero.reshape(-1)[0]), lost)
        index = _index(layer, y, lost.place, lost.channel)
        native = onnxruntime_products.finish(layer, values, exact, lost.channel)
        counted.add(outputs=len(lost.place), rounded=int(np.count_nonzero(native != y[index])))
        y[index] = onnxruntime_products.finish(layer, values, exact - lost.amount, lost.channel)
        return y


def _exact_sums(layer: IntegerLayer, x: Array, zero: int, lost: Lost) -> Array:
    """Exact sums of the outputs that lose something, so many at a time that their factors stay in the cache."""
    several = max(1, _SUMS // max(1, layer.weight.shape[1]))
    parts = [slice(start, start + several) for start in range(0, len(lost.place), several)]
    sums = [
        pair_sums.exact_sums(layer.product, layer.weight, x, zero, lost.place[part], lost.channel[part])
        for part in parts
    ]
    return np.concatenate(sums)


def _index(layer: IntegerLayer, y: Array, place: Array, channel: Array) -> tuple[Array, ...]:
    """Where in an output the channels of some places stand."""
    channel_axis = y.ndim - 1 if layer.channels_last else 1
    sizes = [size for axis, size in enumerate(y.shape) if axis != channel_axis]
    index = list(np.unravel_index(place, sizes))
    index.insert(channel_axis, channel)
    return tuple(index)


def _channels_first(layer: IntegerLayer, x: Array) -> Array:
    """The bytes that a layer reads as ``pair_sums`` wants them."""
    if not layer.product.kernel:
        return x.reshape(-1, x.shape[-1])
    return np.moveaxis(x, -1, 1) if layer.channels_last else x


def _fixed_batch(value: Any) -> int | None:
    """The only number of examples that a file takes; None: any."""
    shape = value.type.tensor_type.shape.dim
    return int(shape[0].dim_value) or None if shape else None
