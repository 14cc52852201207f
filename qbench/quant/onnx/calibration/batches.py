"""A user's batches -> what an ONNX Runtime session takes, checked against the inputs that the model declares."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from qbench.errors import DataError, UsageError, reraise
from qbench.quant.onnx import onnxruntime_session

if TYPE_CHECKING:
    from qbench.quant.onnx.graph.graph import Graph

Array = NDArray[Any]
Feed: TypeAlias = dict[str, Array]
# One batch: arrays by input name, arrays in the order of the inputs, or the array of a model with one input.
Batch: TypeAlias = Mapping[str, Array] | Sequence[Array] | Array
# A list, any other object that can be iterated again, a generator (one pass only), or a function that makes one.
Batches: TypeAlias = Iterable[Batch] | Callable[[], Iterable[Batch]]

# What exporters (Paddle's) write for a size that they do not know: not the same wherever it stands.
UNNAMED = ("", "?")
# ONNX Runtime's names of the types that numpy calls otherwise.
_NUMPY_NAMES = {"float": "float32", "double": "float64"}


class Feeds:
    """The first ``batch_num`` batches as feeds of a model with these ``inputs``, numbered from 1; each loop over it is
    one pass.

    Raises ``DataError`` for a batch that the model cannot take and for fewer than ``batch_num`` batches.
    """

    def __init__(self, inputs: Sequence[Declared], batches: Batches, batch_num: int) -> None:
        self.inputs = inputs
        self.batch_num = batch_num
        self._batches = batches

    def __iter__(self) -> Iterator[tuple[int, Feed]]:
        source = iter(self._batches() if callable(self._batches) else self._batches)
        for number in range(1, self.batch_num + 1):
            try:
                batch = next(source)
            except StopIteration:
                raise too_few(number - 1, self.batch_num) from None
            yield number, checked(self.inputs, batch, number)


def require_several_passes(batches: Batches, steps: Sequence[str]) -> None:
    """Raises ``UsageError`` where the batches can be had only once."""
    if not callable(batches) and iter(batches) is batches:
        raise UsageError(
            f"calibration data: {' and '.join(steps)} need several passes over the batches and a generator gives one; "
            "pass a list, or the function that makes the generator"
        )


def too_few(count: int, batches: int) -> DataError:
    """The error for data that ends early."""
    return DataError(
        f"calibration saw fewer than batch_num batches: {count} of {batches}; give more data, or lower batch_num in "
        "the configuration and quantize again"
    )


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a graph says of an input or output, as a session tells it."""

    name: str
    shape: tuple[int | str | None, ...]
    type: str

    @classmethod
    def copy(cls, described: Any) -> Declared:
        """Of a session's own description, which holds the session in memory."""
        return cls(name=described.name, shape=tuple(described.shape), type=described.type)

    def count_bytes(self, sizes: Mapping[str, int]) -> int | None:
        """How many it takes where the symbols have these ``sizes``; None where something is not known."""
        kind = dtype_of(self.type)
        dims = [sizes.get(size) if isinstance(size, str) else size for size in self.shape]
        known = [size for size in dims if size is not None and size >= 0]
        return kind.itemsize * math.prod(known) if kind is not None and dims and len(known) == len(dims) else None


def declared(graph: Graph) -> tuple[Declared, ...]:
    """The inputs of a graph that are not initializers, in order."""
    import onnx

    declared_inputs = []
    for value in graph.model.graph.input:
        if value.name in graph.inputs:
            kind = value.type.tensor_type.elem_type
            own_names = (
                f"tensor({onnx.helper.tensor_dtype_to_np_dtype(kind)})" if kind else str(value.type.WhichOneof("value"))
            )
            declared_inputs.append(Declared(name=value.name, shape=graph.shape(value.name) or (), type=own_names))
    return tuple(declared_inputs)


def by_name(inputs: Sequence[Any], batch: Batch) -> Feed:
    """One batch with the names of the session's inputs; raises ``ValueError`` where names or their number differ."""
    names = [value.name for value in inputs]
    if isinstance(batch, Mapping):
        if batch.keys() != set(names):
            raise ValueError(f"inputs named {_listed(batch)}, the model has {_listed(names)}")
        return {name: np.asarray(batch[name]) for name in names}
    arrays = [batch] if hasattr(batch, "__array__") else list(batch)  # a tensor of torch's is an array, too
    if len(arrays) != len(names):
        raise ValueError(f"{len(arrays)} arrays, the model has {len(names)} inputs: {_listed(names)}")
    return dict(zip(names, map(np.asarray, arrays), strict=True))


def plain(batch: Batch) -> Batch:
    """A batch as arrays of numpy, whatever they were: another process can take it."""
    if isinstance(batch, Mapping):
        return {name: np.asarray(value) for name, value in batch.items()}
    return np.asarray(batch) if hasattr(batch, "__array__") else [np.asarray(value) for value in batch]


def checked(inputs: Sequence[Any], batch: Batch, number: int) -> Feed:
    """The feed of batch ``number``; raises ``DataError`` for another type, shape, or values that are not finite."""
    try:
        feed = by_name(inputs, batch)
        sizes: dict[str, tuple[str, int]] = {}
        for declared_input in inputs:
            _check(declared_input, feed[declared_input.name], sizes)
    except ValueError as error:
        raise DataError(f"calibration data, batch {number}: {error}") from error
    return feed


def one_example(inputs: Sequence[Any], feed: Feed) -> Feed:
    """The first example of a feed; the feed itself where the model demands a size, or where its arrays do not have one
    length."""
    lengths = {len(array) if array.ndim else 0 for array in feed.values()}
    fixed = any(not value.shape or isinstance(value.shape[0], int) for value in inputs)
    return feed if fixed or len(lengths) > 1 or lengths <= {0, 1} else {name: array[:1] for name, array in feed.items()}


def _check(declaration: Any, array: Array, sizes: dict[str, tuple[str, int]]) -> None:
    """One array against what its input declares; ``sizes``: who gave each symbol of a shape which size."""
    name, shape = declaration.name, tuple(declaration.shape)
    kind = dtype_of(declaration.type)
    if kind is None:
        raise ValueError(f"input {name} is no tensor ({declaration.type}) and cannot be calibrated")
    if array.dtype != kind:
        raise ValueError(f"input {name} takes {kind}, got {array.dtype}; convert it with .astype('{kind}')")
    shape = shape or (None,) * array.ndim  # runtimes tell a number of dimensions that is not known as none at all
    fits = array.ndim == len(shape)
    fits = fits and all(not isinstance(a, int) or a in (b, -1) for a, b in zip(shape, array.shape, strict=True))
    if not fits:
        raise ValueError(f"input {name} has shape {list(array.shape)}, the model takes {_words(shape)}")
    if not array.size:
        raise ValueError(f"input {name} has shape {list(array.shape)}: there is nothing in it")
    for symbol, size in zip(shape, array.shape, strict=True):
        has_symbol = isinstance(symbol, str) and symbol not in UNNAMED
        first = sizes.setdefault(str(symbol), (name, size)) if has_symbol else (name, size)
        if first[1] != size:
            raise ValueError(f"{symbol} is {first[1]} in input {first[0]} and {size} in input {name}")
    if kind.kind == "f" and (bad := array.size - int(np.count_nonzero(np.isfinite(array)))):
        raise ValueError(f"input {name}: {bad} values are NaN or inf; correct the preprocessing")


def dtype_of(kind: str) -> np.dtype[Any] | None:
    """numpy's type of an input that ONNX Runtime calls ``tensor(float)``; None for what is no tensor of numbers."""
    inner = kind.removeprefix("tensor(").removesuffix(")")
    try:
        return np.dtype(_NUMPY_NAMES.get(inner, inner))
    except TypeError:
        return None


def doubtful(feed: Feed) -> list[str]:
    """What looks wrong about the values of a batch, though the model takes them."""
    warnings = []
    for name, array in feed.items():
        if array.dtype.kind != "f":
            continue
        low, high = float(array.min()), float(array.max())
        if low == high:
            warnings.append(f"input {name}: every value of the first examples is {low:g}; is this the real data?")
        elif array.ndim >= 3 and low >= 0 and 16 < high <= 255 and np.array_equal(array, np.rint(array)):
            warnings.append(
                f"input {name}: whole numbers from {low:g} to {high:g} look like raw pixels; scales are right "
                "only if the deployed model is fed the same way (preprocess as in training)"
            )
    return warnings


def infer(session: Any, names: Sequence[str], feed: Feed, number: int) -> dict[str, Array]:
    """The named outputs of one inference; raises ``DataError`` with the runtime's words and the batch."""
    with reraise(
        DataError,
        lambda error: (
            f"calibration data, batch {number}: ONNX Runtime cannot run the model on it: "
            f"{onnxruntime_session.plain(error)}"
        ),
        onnxruntime_session.runtime_errors(),
    ):
        return dict(zip(names, onnxruntime_session.call(session, names, feed), strict=True))


def _words(shape: tuple[Any, ...]) -> str:
    return "[" + ", ".join(str(size) if size not in (None, -1) else "any" for size in shape) + "]"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(str, names)) or "none"


@dataclass(frozen=True)
class Kept:
    """Batches in files; each call reads them again, in their order."""

    files: tuple[Path, ...]

    def __call__(self) -> Iterator[Batch]:
        """One pass over them."""
        for file in self.files:
            with file.open("rb") as stream:
                yield pickle.load(stream)


def keep(batches: Batches, folder: Path, examples: int) -> Kept:
    """The first batches, as many as surely hold that many examples, as files in ``folder``; only this process and those
    that it tells of them may write there."""
    files: list[Path] = []
    total = 0
    for batch in batches() if callable(batches) else batches:
        arrays = plain(batch)
        files.append(folder / f"batch{len(files)}.pickle")
        with files[-1].open("wb") as stream:
            pickle.dump(arrays, stream, protocol=pickle.HIGHEST_PROTOCOL)
        total += _shortest(arrays)
        if total >= examples:
            break
    return Kept(tuple(files))


def _shortest(batch: Batch) -> int:
    """How many examples a batch holds at least, whichever of its arrays counts them."""
    arrays = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list) else [batch]
    return max(1, min((len(array) for array in arrays if getattr(array, "ndim", 0)), default=1))
