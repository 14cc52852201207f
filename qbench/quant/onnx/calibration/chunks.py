"""A batch cut into chunks of bounded memory, where the model treats each example by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.calibration.batches import Feed, infer

Array = NDArray[Any]
# Of all calibrated activations of one chunk; two chunks are under way at a time.
CHUNK_BYTES = 12 * 2**20
# Between an example alone and in a pair, of the largest value: other kernels round in another order.
SAME = 1e-3
SAMPLE = 2**16  # values of a tensor that are compared for it


def stream(session: Any, names: Sequence[str], feeds: Iterable[tuple[int, Feed]], chunker: Chunker) -> Iterator[Chunk]:
    """Runs the model over all batches, chunk by chunk; the values of a chunk are the caller's to free."""
    for number, feed in feeds:
        for chunk in chunker.cut(session, names, feed, number):
            yield Chunk(batch=number, feed=chunk, values=infer(session, names, chunk, number))


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A part of batch number ``batch`` (from 1): what was fed, and the ``values`` of the outputs asked for."""

    batch: int
    feed: Feed
    values: dict[str, Array]

    @property
    def examples(self) -> int:
        """How many, along the first axis of the first input."""
        first = next(iter(self.feed.values()))
        return len(first) if first.ndim else 1


class Chunker:
    """Cuts batches so that the activations of one chunk take at most ``CHUNK_BYTES`` (or it holds one example).

    A batch stays whole where the model demands its size, or where two examples in one batch give other values than
    each by itself (an axis that is time, attention over the batch): found out once, on the first two examples.
    """

    def __init__(self) -> None:
        self._size: int | None = None  # examples in a chunk; 0: batches stay whole

    def cut(self, session: Any, names: Sequence[str], feed: Feed, number: int) -> Iterator[Feed]:
        """The chunks of batch number ``number`` in order; ``names``: the outputs whose memory is bounded."""
        counts = {len(array) if array.ndim else 0 for array in feed.values()}
        count = counts.pop()
        if (
            counts
            or count < 2
            or any(not value.shape or isinstance(value.shape[0], int) for value in session.get_inputs())
        ):
            yield feed
            return
        if self._size is None:
            self._size = _examples_in_a_piece(session, names, feed, number)
        size = self._size or count
        for start in range(0, count, size):
            yield {name: array[start : start + size] for name, array in feed.items()}


def _examples_in_a_piece(session: Any, names: Sequence[str], feed: Feed, number: int) -> int:
    """As many as fit; 0 where examples depend on each other. Of each call samples are kept, not all values."""

    def call(start: int, end: int) -> dict[str, Array]:
        return infer(session, names, {name: array[start:end] for name, array in feed.items()}, number)

    size, first, second = 0, {}, {}
    for name, values in call(0, 1).items():
        size, first[name] = size + values.nbytes, _Sample.take(values)
    for name, values in call(1, 2).items():
        second[name] = _Sample.take(values)
    for name, pair in call(0, 2).items():
        if not _independent(first[name], second[name], pair):
            return 0
    return max(1, CHUNK_BYTES // max(1, size))


@dataclass(frozen=True, kw_only=True)
class _Sample:
    """The shape of an array, and values from all over it."""

    shape: tuple[int, ...]
    values: Array

    @classmethod
    def take(cls, array: Array) -> _Sample:
        step = max(1, array.size // SAMPLE) | 1  # odd, else it meets the same few channels
        return cls(shape=array.shape, values=array.reshape(-1)[::step].copy())


def _independent(first: _Sample, second: _Sample, pair: Array) -> bool:
    """Whether the values of a pair are those of its examples, one behind the other."""
    if not first.shape or pair.shape != (2 * first.shape[0], *first.shape[1:]) or first.shape != second.shape:
        return False
    halves = pair[: first.shape[0]], pair[first.shape[0] :]
    together = np.concatenate([_Sample.take(half).values for half in halves])
    apart = np.concatenate([first.values, second.values])
    if pair.dtype.kind != "f":
        return bool(np.array_equal(apart, together))
    ends = [np.abs(part[np.isfinite(part)]).max(initial=0.0) for part in halves]
    return bool(np.allclose(apart, together, rtol=0, atol=SAME * float(max(ends, default=0.0)), equal_nan=True))
