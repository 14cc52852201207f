"""Calibration data in chunks of bounded memory: batches cut into examples where the model treats each by itself, and
the model into parts where the activations of a chunk are too many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.calibration.batches import UNNAMED, Feed, infer
from qbench.quant.onnx.calibration.parts import Model, Run

Array = NDArray[Any]
# Of all calibrated activations of one part of one chunk; two are under way at a time, of larger ones a single one.
CHUNK_BYTES = 12 * 2**20
# Between an example alone and in a pair, of the largest value: other kernels round in another order.
SAME = 1e-3
SAMPLE = 2**14  # values of each activation by which examples are compared


def stream(model: Model, names: Sequence[str], feeds: Iterable[tuple[int, Feed]], chunker: Chunker) -> Iterator[Chunk]:
    """Runs the model over all batches, chunk by chunk and part by part; the values are the caller's to free."""
    with ExitStack() as stack:
        run: Run | None = None
        for number, feed in feeds:
            for piece in chunker.cut(model, names, feed, number):
                if run is None:  # only now: the chunker has sessions of its own
                    run = stack.enter_context(model.prepare(_find_sizes(model, names, piece, number), CHUNK_BYTES))
                for part, values in enumerate(run(piece, number)):
                    yield Chunk(batch=number, feed=piece, values=values, part=part)


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Examples of batch number ``batch`` (from 1): what was fed, and the ``values`` of the outputs asked for that a
    ``part`` of the model (from 0) computes."""

    batch: int
    feed: Feed
    values: Feed
    part: int = 0

    @property
    def examples(self) -> int:
        """How many, along the first axis of the first input."""
        first = next(iter(self.feed.values()))
        return len(first) if first.ndim else 1

    @property
    def activations(self) -> Feed:
        """The values of the outputs, and with the first part those of the inputs: each is there once."""
        return self.values if self.part else self.feed | self.values


class Chunker:
    """Cuts batches so that the activations of one chunk take at most ``CHUNK_BYTES``, or it holds one example.

    A batch stays whole where the model demands its size, or where two examples in one batch give other values than
    each by itself (an axis that is time, attention over the batch): found out once, on the first two examples, unless
    they are known to be ``separate``.
    """

    def __init__(self, *, separate: bool = False) -> None:
        self._separate = separate
        self._size: int | None = None  # examples in a chunk; 0: batches stay whole

    def cut(self, model: Model, names: Sequence[str], feed: Feed, number: int) -> Iterator[Feed]:
        """The chunks of batch number ``number`` in order; ``names``: the outputs whose memory is bounded."""
        counts = {len(array) if array.ndim else 0 for array in feed.values()}
        count = counts.pop()
        if counts or count < 2 or any(not value.shape or isinstance(value.shape[0], int) for value in model.inputs):
            yield feed
            return
        if self._size is None:
            self._size = self._count_examples(model, names, feed, number)
        size = self._size or count
        for start in range(0, count, size):
            yield _examples(feed, start, start + size)

    def _count_examples(self, model: Model, names: Sequence[str], feed: Feed, number: int) -> int:
        """As many as fit in a chunk; 0 where examples depend on each other."""
        sizes = _find_sizes(model, names, _examples(feed, 0, 1), number)
        if not self._separate:
            with model.prepare(sizes, CHUNK_BYTES) as run:
                if _depend(run, feed, number):
                    return 0
        return max(1, CHUNK_BYTES // max(1, sum(sizes.values())))


def _examples(feed: Feed, start: int, end: int) -> Feed:
    return {name: array[start:end] for name, array in feed.items()}


def _find_sizes(model: Model, names: Sequence[str], feed: Feed, number: int) -> dict[str, int]:
    """The bytes of each output for this feed, as the model declares them; where it does not, from a call."""
    sizes = {
        symbol: size
        for value in model.inputs
        for symbol, size in zip(value.shape, feed[value.name].shape, strict=False)
        if isinstance(symbol, str) and symbol not in UNNAMED
    }
    declared = {value.name: value.count_bytes(sizes) for value in model.outputs}
    known = {name: size for name in names if (size := declared.get(name)) is not None}
    if len(known) == len(names):
        return known
    return {name: values.nbytes for name, values in infer(model.session, names, feed, number).items()}


def _depend(run: Run, feed: Feed, number: int) -> bool:
    """Whether the first two examples give other values together than each by itself. Of what each gives a sample is
    kept: all of it, beside that of both, would be the most memory of a calibration."""

    def call(start: int, end: int) -> Iterator[tuple[str, Array]]:
        for values in run(_examples(feed, start, end), number):
            while values:
                yield values.popitem()

    first, second = ({name: _Sample.take(values) for name, values in call(*ends)} for ends in ((0, 1), (1, 2)))
    return not all(_independent(first[name], second[name], pair) for name, pair in call(0, 2))


@dataclass(frozen=True)
class _Sample:
    """The shape of an array and values spread over it."""

    shape: tuple[int, ...]
    values: Array

    @classmethod
    def take(cls, array: Array) -> _Sample:
        """All values of a small array."""
        places = np.linspace(0, max(0, array.size - 1), min(array.size, SAMPLE)).astype(np.int64)
        return cls(array.shape, array.reshape(-1)[places])


def _independent(first: _Sample, second: _Sample, pair: Array) -> bool:
    """Whether the values of a pair are those of its examples, one behind the other."""
    if first.shape != second.shape or not first.shape or pair.shape != (2 * first.shape[0], *first.shape[1:]):
        return False
    both = zip((first, second), map(_Sample.take, np.split(pair, 2)), strict=True)
    if pair.dtype.kind != "f":
        return all(np.array_equal(apart.values, joined.values) for apart, joined in both)
    finite = np.isfinite(pair)
    largest = max(float(pair.max(initial=0.0, where=finite)), -float(pair.min(initial=0.0, where=finite)))
    return all(
        np.allclose(apart.values, joined.values, rtol=0, atol=SAME * largest, equal_nan=True) for apart, joined in both
    )
