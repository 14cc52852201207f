"""Calibration data in chunks of bounded memory: batches cut into examples where the model treats each by itself, and
activations asked for a group at a time where those of a chunk do not fit together."""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.artifacts import onnx_outline
from qbench.quant.onnx import graph_process, onnxruntime_session
from qbench.quant.onnx.calibration.batches import UNNAMED, Declared, Feed, infer
from qbench.quant.onnx.graph.graph import Graph

Array = NDArray[Any]
# Of all calibrated activations of one chunk; two chunks are under way at a time, of larger ones a single one.
CHUNK_BYTES = 12 * 2**20
# Of outputs, in which is found whether examples depend on each other: each calls the model three times.
MOST_GROUPS = 8
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"  # of a model that is no file
# Between an example alone and in a pair, of the largest value: other kernels round in another order.
SAME = 1e-3


def stream(
    model: Model, names: Sequence[str], feeds: Iterable[tuple[int, Feed]], chunker: Chunker, *, several: bool = False
) -> Iterator[Chunk]:
    """Runs the model over all batches, chunk by chunk; the values of a chunk are the caller's to free. ``several``:
    outputs that do not fit together may take several passes over ``feeds``."""
    rest = iter(feeds)
    head = list(itertools.islice(rest, 1))
    groups = chunker.group(model, names, *head[0]) if several and head else [names]
    first_pass = itertools.chain([head.pop()] if head else [], rest)
    with model.prepare(groups) as open_group:
        for turn, group in enumerate(groups):
            session = None
            for number, feed in feeds if turn else first_pass:
                for part in chunker.cut(model, names, feed, number):
                    session = session or open_group(group)  # only now: the chunker has sessions of its own
                    values = infer(session, group, part, number)
                    yield Chunk(batch=number, feed=part, values=values, turn=turn, turns=len(groups))
            del session  # before the next is opened


class Model:
    """A model file, and its session: opened when it is first asked for, and again after it was closed."""

    def __init__(self, file: Path, threads: int) -> None:
        self.file = file
        self._threads = threads

    @functools.cached_property
    def session(self) -> Any:
        """Of the file as it is, which holds all outputs that the model declares, asked for or not."""
        session = onnxruntime_session.open_session(self.file, options=self._options())
        graph_process.release_memory(self.file)  # that reading the file took
        return session

    def close(self) -> None:
        """Gives back what the session holds, where nobody else has it."""
        self.__dict__.pop("session", None)

    @functools.cached_property
    def inputs(self) -> tuple[Declared, ...]:
        """What the model declares, in order."""
        return tuple(map(Declared.copy, self.session.get_inputs()))

    @functools.cached_property
    def outputs(self) -> tuple[Declared, ...]:
        """As ``inputs``."""
        return tuple(map(Declared.copy, self.session.get_outputs()))

    @contextmanager
    def prepare(self, groups: Sequence[Sequence[str]]) -> Iterator[Callable[[Sequence[str]], Any]]:
        """Gives a function: the names of a group of outputs -> a session for them; the model's own where there is but
        one group, else, with that closed, one of ``prepare_few``."""
        if len(groups) == 1:
            yield lambda names: self.session
            return
        self.close()
        with self.prepare_few() as open_few:
            yield open_few

    @contextmanager
    def prepare_few(self) -> Iterator[Callable[[Sequence[str]], Any]]:
        """Gives a function: named outputs -> a session that holds no others, and computes no more than they need; its
        weights are mapped from a file."""
        import onnx

        with tempfile.TemporaryDirectory() as folder:
            apart = onnx_outline.write_weights_apart(self.file, Path(folder))
            whole = Graph(onnx.load(str(apart), load_external_data=False))

            def open_few(names: Sequence[str]) -> Any:
                few = whole.copy()
                del few.model.graph.output[:]
                few.model.graph.output.extend(value for value in whole.model.graph.output if value.name in names)
                few.drop_unused()
                options = self._options()
                options.add_session_config_entry(_WEIGHTS_FOLDER, str(apart.parent))
                return onnxruntime_session.open_session(few.model.SerializeToString(), options=options)

            yield open_few

    def _options(self) -> Any:
        options = onnxruntime_session.session_options(self._threads)
        onnxruntime_session.spare_memory(options)
        return options


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A part of batch number ``batch`` (from 1): what was fed, and the ``values`` of the outputs asked for, or in the
    ``turn`` of each group of outputs (from 0, of so many ``turns``) of those alone."""

    batch: int
    feed: Feed
    values: dict[str, Array]
    turn: int = 0
    turns: int = 1

    @property
    def examples(self) -> int:
        """How many, along the first axis of the first input."""
        first = next(iter(self.feed.values()))
        return len(first) if first.ndim else 1

    @property
    def activations(self) -> Feed:
        """The values of the outputs, and of the inputs in the first turn: each is there once."""
        return self.values if self.turn else self.feed | self.values


class Chunker:
    """Cuts batches so that the activations of one chunk take at most ``CHUNK_BYTES`` (or it holds one example), and
    parts outputs whose activations take more than twice as much all the same.

    A batch stays whole where the model demands its size, or where two examples in one batch give other values than
    each by itself (an axis that is time, attention over the batch): found out once, on the first two examples.
    """

    def __init__(self) -> None:
        self._size: int | None = None  # examples in a chunk; 0: batches stay whole

    def group(self, model: Model, names: Sequence[str], number: int, feed: Feed) -> list[Sequence[str]]:
        """The outputs in groups, in order, by their sizes for the first chunk of batch number ``number``."""
        sizes = _find_sizes(model, names, next(self.cut(model, names, feed, number)), number)
        return list(_group(sizes, max(2 * CHUNK_BYTES, sum(sizes.values()) // 2)))  # each computes what is before it

    def cut(self, model: Model, names: Sequence[str], feed: Feed, number: int) -> Iterator[Feed]:
        """The chunks of batch number ``number`` in order; ``names``: the outputs whose memory is bounded."""
        counts = {len(array) if array.ndim else 0 for array in feed.values()}
        count = counts.pop()
        if counts or count < 2 or any(not value.shape or isinstance(value.shape[0], int) for value in model.inputs):
            yield feed
            return
        if self._size is None:
            self._size = _examples_in_a_piece(model, names, feed, number)
        size = self._size or count
        for start in range(0, count, size):
            yield {name: array[start : start + size] for name, array in feed.items()}


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


def _examples_in_a_piece(model: Model, names: Sequence[str], feed: Feed, number: int) -> int:
    """As many as fit; 0 where examples depend on each other. Where not many fit, outputs are compared a few at a time,
    by sessions that hold no others: those of a pair would be the most memory of a calibration."""

    def call(session: Any, asked: Sequence[str], start: int, end: int) -> dict[str, Array]:
        return infer(session, asked, {name: array[start:end] for name, array in feed.items()}, number)

    def find_dependence(session: Any, few: Sequence[str]) -> bool:
        pair, first, second = (call(session, few, *ends) for ends in ((0, 2), (0, 1), (1, 2)))
        return not all(_independent(first[name], second[name], pair[name]) for name in few)

    sizes = _find_sizes(model, names, {name: array[:1] for name, array in feed.items()}, number)
    total = sum(sizes.values())
    if total <= CHUNK_BYTES:
        return 0 if find_dependence(model.session, names) else max(1, CHUNK_BYTES // max(1, total))
    model.close()
    groups = _group(sizes, max(CHUNK_BYTES // 4, total // MOST_GROUPS))
    with model.prepare_few() as open_few:
        return 0 if any(find_dependence(open_few(few), few) for few in groups) else 1


def _group(sizes: Mapping[str, int], most: int) -> Iterator[list[str]]:
    """The names in order, as many together as have ``most`` bytes at most, or a single one."""
    few: list[str] = []
    total = 0
    for name, size in sizes.items():
        if few and total + size > most:
            yield few
            few, total = [], 0
        few.append(name)
        total += size
    yield few


def _independent(first: Array, second: Array, pair: Array) -> bool:
    """Whether the values of a pair are those of its examples, one behind the other."""
    if not pair.ndim or pair.shape != (len(first) + len(second), *first.shape[1:]) or first.shape != second.shape:
        return False
    both = ((first, pair[: len(first)]), (second, pair[len(first) :]))
    if pair.dtype.kind != "f":
        return all(np.array_equal(apart, joined) for apart, joined in both)
    finite = np.isfinite(pair)
    largest = max(float(pair.max(initial=0.0, where=finite)), -float(pair.min(initial=0.0, where=finite)))
    return all(np.allclose(apart, joined, rtol=0, atol=SAME * largest, equal_nan=True) for apart, joined in both)
