"""A batch cut into chunks of bounded memory, where the model treats each example by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx import graph_process
from qbench.quant.onnx.calibration.batches import Feed, infer

Array = NDArray[Any]
# Of all calibrated activations of one chunk; two chunks are under way at a time.
CHUNK_BYTES = 12 * 2**20
# Between an example alone and in a pair, of the largest value: other kernels round in another order.
SAME = 1e-3


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
    """As many as fit; 0 where examples depend on each other. Outputs are compared a few at a time: those of four
    examples at once would be the most memory of a calibration."""

    def call(asked: Sequence[str], start: int, end: int) -> dict[str, Array]:
        return infer(session, asked, {name: array[start:end] for name, array in feed.items()}, number)

    sizes = {name: values.nbytes for name, values in call(names, 0, 1).items()}
    for few in _group(sizes):
        graph_process.trim_heap()  # the arrays of each call lie elsewhere in it
        pair, first, second = (call(few, start, end) for start, end in ((0, 2), (0, 1), (1, 2)))  # the largest alone
        if not all(_independent(first[name], second[name], pair[name]) for name in few):
            return 0
    return max(1, CHUNK_BYTES // max(1, sum(sizes.values())))


def _group(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """The names in order, as many together as have ``CHUNK_BYTES`` at most, or a single one."""
    few: list[str] = []
    total = 0
    for name, size in sizes.items():
        if few and total + size > CHUNK_BYTES:
            yield few
            few, total = [], 0
        few.append(name)
        total += size
    yield few


def _independent(first: Array, second: Array, pair: Array) -> bool:
    """Whether the values of a pair are those of its examples, one behind the other."""
    if not pair.ndim or pair.shape != (len(first) + len(second), *first.shape[1:]) or first.shape != second.shape:
        return False
    apart = np.concatenate([first, second])
    if pair.dtype.kind != "f":
        return bool(np.array_equal(apart, pair))
    largest = float(np.abs(pair).max(initial=0.0, where=np.isfinite(pair)))
    return bool(np.allclose(apart, pair, rtol=0, atol=SAME * largest, equal_nan=True))
