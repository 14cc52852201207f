"""An ONNX file as a network: its inputs, what they take, and the batch size that they demand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError
from qbench.files import regular_file
from qbench.quant.artifacts import onnx_outline
from qbench.quant.onnx import graph_process

Array = NDArray[Any]


def copy(source: Path, target: Path) -> None:
    """The user's ONNX file as one file, external data taken in."""
    import onnx

    model = onnx_outline.read_outline(source)
    if any(tensor.external_data for tensor in model.graph.initializer):
        onnx.save(onnx.load(str(source)), str(target))
    else:
        shutil.copyfile(source, target)


def list_external(file: Path) -> set[Path]:
    """The files below an ONNX file's folder that hold weights of it; empty where the file cannot be read."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        tensors = onnx_outline.read_outline(file).graph.initializer
    except (OSError, DecodeError):
        return set()
    folder = regular_file.real_path(file).parent
    names = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    places = {regular_file.real_path(folder / name) for name in names}
    return {place for place in places if place.is_relative_to(folder) and place.is_file()}


@dataclass(frozen=True, kw_only=True)
class DeclaredInput:
    """An input as a file declares it: ``dtype`` is numpy's name of its type (None: not a tensor); ``sizes``, the
    examples first, with the name of those that are free, None where they have none."""

    name: str
    dtype: str | None
    sizes: tuple[int | str | None, ...]


def find_example_axes(inputs: Sequence[DeclaredInput]) -> tuple[int | None, ...]:
    """Of each input the axis along which its examples lie; None of a scalar, which has none. It is the first, but where
    another has the size that the first input has of examples (by its name, or none, or the number) and the first has
    not: a recurrent state of layers x batch x features."""
    batch = next((_size_or_name(entry.sizes[0]) for entry in inputs if entry.sizes), None)
    return tuple(_find_axis([_size_or_name(size) for size in entry.sizes], batch) for entry in inputs)


def _size_or_name(size: int | str | None) -> int | str | None:
    """A size; None where it is free and has no name."""
    return None if isinstance(size, int) and size < 1 else size


def _find_axis(sizes: Sequence[int | str | None], batch: int | str | None) -> int | None:
    if not sizes:
        return None
    others = [axis for axis, size in enumerate(sizes) if size == batch]
    return others[0] if isinstance(sizes[0], int) and sizes[0] != batch and len(others) == 1 else 0


def assume_sizes(entry: DeclaredInput, axis: int | None) -> tuple[int, ...]:
    """The sizes of an input for one example along ``axis``; where the file leaves one free, that of usual data:
    pictures of 224 x 224, 128 of what else it is."""
    sizes = [_size_or_name(size) for size in entry.sizes]
    is_picture = len(sizes) == 4 and {1, 3} & {sizes[1], sizes[3]} and (entry.dtype or "").startswith("float")
    usual = 224 if is_picture else 128
    return tuple(size if isinstance(size, int) else 1 if place == axis else usual for place, size in enumerate(sizes))


def list_inputs(model: Any) -> tuple[DeclaredInput, ...]:
    """The inputs of a ``ModelProto`` that are not initializers, in order."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return tuple(
        DeclaredInput(name=value.name, dtype=_name_dtype(value), sizes=read_sizes(value))
        for value in model.graph.input
        if value.name not in constants
    )


def read_sizes(value: Any) -> tuple[int | str | None, ...]:
    """The sizes of a ``ValueInfoProto``, as ``DeclaredInput`` has them."""
    return tuple(dim.dim_value or dim.dim_param or None for dim in value.type.tensor_type.shape.dim)


def _name_dtype(value: Any) -> str | None:
    import onnx

    kind = value.type.tensor_type.elem_type
    return str(onnx.helper.tensor_dtype_to_np_dtype(kind)) if kind else None


def _read_inputs(file: Path) -> tuple[DeclaredInput, ...]:
    return list_inputs(onnx_outline.read_outline(file))


def input_names(file: Path) -> tuple[str, ...]:
    """The names of the inputs that are not initializers, in order."""
    return tuple(declared.name for declared in _read_inputs(file))


def output_names(file: Path) -> tuple[str, ...]:
    """The names of the outputs, in order."""
    return tuple(value.name for value in onnx_outline.read_outline(file).graph.output)


def input_types(file: Path) -> dict[str, str | None]:
    """What each input that is no initializer takes: its name -> numpy's name of its type (None: not a tensor)."""
    return {declared.name: declared.dtype for declared in _read_inputs(file)}


def fixed_batch(file: Path) -> int | None:
    """The batch size that the inputs demand, as the first with a fixed one says; None where it is dynamic."""
    return find_fixed_batch(_read_inputs(file))


def find_fixed_batch(inputs: Sequence[DeclaredInput]) -> int | None:
    """The same, of inputs that were read."""
    places = zip(inputs, find_example_axes(inputs), strict=True)
    batches = (declared.sizes[axis] for declared, axis in places if axis is not None)
    return next((size for size in batches if isinstance(size, int) and size > 0), None)


def tile_batch(file: Path, example: tuple[Array, ...]) -> tuple[Array, ...]:
    """One example (a batch of 1), repeated to the batch size that the file demands."""
    return tuple(np.repeat(array, fixed_batch(file) or 1, axis=0) for array in example)


def require_repeatable(
    open_file: Callable[[Path], Callable[[tuple[Array, ...]], Array]],
    file: Path,
    inputs: tuple[Array, ...],
    runtime: str,
) -> None:
    """Raises ``BuildError`` unless a file, opened twice and called twice, gives the same outputs."""
    run = open_file(file)
    # Copies: ONNX Runtime's arena, weights and all, lives as long as an output of it.
    expected, *others = (np.array(run(inputs)) for _ in range(2))
    del run  # two models at once take the most memory of a build
    graph_process.release_memory(file)
    others.append(open_file(file)(inputs))
    if not all(np.array_equal(expected, outputs, equal_nan=True) for outputs in others):
        raise BuildError(
            f"the outputs of {runtime} for the ONNX model differ from call to call: is randomness left in its graph "
            "(Dropout in training mode, RandomNormal)? Export it from a network in eval mode"
        )


class Batches:
    """Examples as batches by input name, as often as they are asked for: of the size that the file demands, the last
    one filled up from the first examples, else of ``size`` at most."""

    def __init__(self, file: Path, inputs: tuple[Array, ...], size: int = 1) -> None:
        self._names, self._inputs = input_names(file), inputs
        self._fixed = fixed_batch(file)
        self._size = self._fixed or size

    def __len__(self) -> int:
        return -(-len(self._inputs[0]) // self._size)

    def __iter__(self) -> Iterator[dict[str, Array]]:
        count = len(self._inputs[0])
        for start in range(0, count, self._size):
            end = start + self._size
            index = np.arange(start, end) % count if self._fixed else np.arange(start, min(end, count))
            yield {name: array[index] for name, array in zip(self._names, self._inputs, strict=True)}
