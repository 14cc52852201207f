"""A file that runs natively in sections, each of which ends where sums of 16 bits are put right."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from qbench.quant.saturation import sections
from qbench.quant.saturation.layer_counter import LayerCounter, LayerSaturation

Array = NDArray[Any]


class CountedLayer(Protocol):
    """A layer whose sums can be counted."""

    @property
    def output(self) -> str:
        """The tensor that it gives."""

    def counter(self) -> LayerCounter:
        """What counts its sums of 16 bits and puts them right."""


L = TypeVar("L", bound=CountedLayer)


class SectionPredictor(ABC, Generic[L]):
    """Answers of one file, batch by batch. ``layers``, ``unknown`` and ``saturated`` are those of a ``Prediction`` for
    the batches so far; ``fixed_batch`` is the only number of examples that the file takes (None: any).

    ``parsed``: of each node of the model, in order, its layer, why what it gives is not predicted, or None; ``names``:
    what the nodes are called; ``open_part``: as ``sections.cut`` takes it.
    """

    def __init__(
        self, model: Any, parsed: Sequence[L | str | None], names: Sequence[str], open_part: sections.Open
    ) -> None:
        self.unknown = {name: why for name, why in zip(names, parsed, strict=True) if isinstance(why, str)}
        counted = [
            (number, layer, layer.counter())
            for number, layer in enumerate(parsed)
            if layer is not None and not isinstance(layer, str)
        ]
        self._counters = tuple(counter for _, _, counter in counted)
        paired = [(number, layer, counter) for number, layer, counter in counted if len(counter.pairs)]
        self._cut = [(layer, counter) for _, layer, counter in paired]
        tensors = [(*self._reads(layer), layer.output) for layer, _ in self._cut]
        self._sections = sections.cut(model, [number for number, _, _ in paired], tensors, open_part)
        constants = sections.read_constants(model)
        self._outputs = [value.name for value in model.graph.output]
        read = (*itertools.chain.from_iterable(tensors), *self._outputs)
        self._constants = {name: constants[name] for name in read if name in constants}
        declared = [value for value in model.graph.input if value.name not in constants]
        self._inputs = [value.name for value in declared]
        self.fixed_batch = _read_fixed_batch(declared[0])
        self._examples, self.saturated = 0, set[int]()

    @property
    def layers(self) -> tuple[LayerSaturation, ...]:
        """What is known of each layer that adds in 16 bits, in the order of the graph."""
        return tuple(counter.report() for counter in self._counters)

    def __call__(self, inputs: tuple[Array, ...]) -> Array:
        """The first output for a batch."""
        return self.predict(inputs)[0]

    def predict(self, inputs: tuple[Array, ...]) -> tuple[Array, ...]:
        """All outputs for a batch."""
        tensors = dict(zip(self._inputs, inputs, strict=True))
        for section, cut in itertools.zip_longest(self._sections, self._cut):
            section.run(tensors)
            if cut is not None:
                layer, counter = cut
                examples = self._correct(layer, counter, tensors, len(inputs[0]))
                self.saturated.update((examples + self._examples).tolist())
            for name in section.finished:
                del tensors[name]
        self._examples += len(inputs[0])
        known = {**self._constants, **tensors}
        return tuple(np.array(known[name]) for name in self._outputs)

    @abstractmethod
    def _reads(self, layer: L) -> Sequence[str]:
        """The tensors that putting a layer right takes."""

    @abstractmethod
    def _correct(self, layer: L, counter: LayerCounter, tensors: dict[str, Array], examples: int) -> Array:
        """Puts into the tensors what a layer gives with sums of 16 bits; which examples had a saturated one."""


def _read_fixed_batch(value: Any) -> int | None:
    """The only number of examples that a file takes; None: any."""
    shape = value.type.tensor_type.shape.dim
    return int(shape[0].dim_value) or None if shape else None
