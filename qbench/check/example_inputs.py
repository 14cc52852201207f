"""Random inputs of the shapes that a file declares, or what a person names."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import UsageError
from qbench.quant.artifacts.onnx_file import DeclaredInput, assume_sizes, find_example_axes

Array = NDArray[Any]
_SHAPE = re.compile(r"(?:(?P<name>.+)=)?(?P<sizes>[1-9]\d*(?:x[1-9]\d*)*|scalar)")
_MOST_VALUES = 2**28  # a gigabyte of floats
_TYPES = ("float16", "float32", "float64", "bool", "int8", "uint8", "int32", "int64")


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a person says of inputs, by name: ``shapes`` (the name is None where only the only input can be meant), and
    ``constants``, the value of each element."""

    shapes: Mapping[str | None, tuple[int, ...]] = field(default_factory=dict)
    constants: Mapping[str, float] = field(default_factory=dict)


def read_given(shapes: Sequence[str], constants: Sequence[str]) -> Given:
    """Of ``ids=1x128`` the shape (1, 128) of ids, of ``1x3x224x224`` that of the only input; of ``rate=16000`` the
    value of rate. Raises ``UsageError``."""
    return Given(shapes=_read_shapes(shapes), constants=_read_constants(constants))


def _read_constants(texts: Sequence[str]) -> dict[str, float]:
    constants: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not name or not math.isfinite(value):
            raise UsageError(f"--constant {text}: write it as name=16000, with the one number that the input holds")
        if name in constants:
            raise UsageError(f"--constant {text}: there are two of them")
        constants[name] = value
    return constants


def _read_shapes(texts: Sequence[str]) -> dict[str | None, tuple[int, ...]]:
    shapes: dict[str | None, tuple[int, ...]] = {}
    for text in texts:
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise UsageError(f"--shape {text}: write it as name=1x3x224x224, or 1x3x224x224 where there is one input")
        sizes = () if match["sizes"] == "scalar" else tuple(map(int, match["sizes"].split("x")))
        if match["name"] in shapes:
            raise UsageError(f"--shape {text}: there are two of them")
        shapes[match["name"]] = sizes
    return shapes


def make_inputs(declared: Sequence[DeclaredInput], given: Given) -> tuple[Array, ...]:
    """An array for each input. A free axis of examples is 1. Floats are normal, integers 0 or 1: both are in range for
    masks, token types and ids.

    Raises ``UsageError`` where another axis is free and no shape is named, or a named one does not fit.
    """
    names = [entry.name for entry in declared]
    only = names[0] if len(names) == 1 else None
    named = {(only if name is None else name): sizes for name, sizes in given.shapes.items()}
    _require_known("--shape", named, names)
    _require_known("--constant", given.constants, names)
    rng, arrays, free = np.random.default_rng(0), [], {}
    for entry, axis in zip(declared, find_example_axes(declared), strict=True):
        sizes = " x ".join(str(size or "?") for size in entry.sizes)
        shape = named.get(entry.name) or _complete(entry, axis)
        if shape is None:
            assumed = f"{entry.name}={_text(assume_sizes(entry, axis))}"
            free[f"{entry.name} ({sizes or 'any shape'})"] = f"--shape {shlex.quote(assumed)}"
            continue
        if entry.name in named and not _fits(shape, entry.sizes):
            raise UsageError(f"--shape {entry.name}: {_text(shape)} does not fit {sizes}")
        arrays.append(_fill(rng, entry, shape, given.constants.get(entry.name)))
    if free:
        raise UsageError(
            f"the size of {', '.join(free)} is not fixed in the file: say it, as in {' '.join(free.values())}"
        )
    return tuple(arrays)


def _require_known(option: str, given: Iterable[str | None], names: Sequence[str]) -> None:
    for name in given:
        if name not in names:
            which = "one without a name" if name is None else name
            raise UsageError(f"{option}: no input is called {which}; the inputs are {', '.join(names)}")


def _complete(entry: DeclaredInput, axis: int | None) -> tuple[int, ...] | None:
    """Its sizes, where the file leaves none free but that of examples."""
    free = [place for place, size in enumerate(entry.sizes) if not isinstance(size, int) or size < 1]
    return assume_sizes(entry, axis) if free in ([], [axis]) else None


def _fits(shape: Sequence[int], sizes: Sequence[Any]) -> bool:
    return len(shape) == len(sizes) and all(
        own == size for own, size in zip(shape, sizes, strict=True) if isinstance(size, int) and size > 0
    )


def _fill(rng: Any, entry: DeclaredInput, shape: tuple[int, ...], constant: float | None) -> Array:
    if entry.dtype not in _TYPES:
        what = "no tensor" if entry.dtype is None else f"a tensor of {entry.dtype}"
        raise UsageError(f"{entry.name} is {what}, of which random values say nothing")
    if np.prod(shape, dtype=np.float64) > _MOST_VALUES:
        raise UsageError(f"--shape: {entry.name} would have {_text(shape)} values; name a smaller one")
    dtype = np.dtype(entry.dtype)
    if constant is not None:
        if not np.issubdtype(dtype, np.floating) and not _holds(dtype, constant):
            raise UsageError(f"--constant {entry.name}: {constant:g} is no value of its type, {dtype}")
        return np.full(shape, constant).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        return np.asarray(rng.standard_normal(shape), dtype)
    return np.asarray(rng.integers(0, 2, shape), dtype)


def _holds(dtype: np.dtype[Any], value: float) -> bool:
    """Whether a type of whole numbers, or of true and false, has a value."""
    low, high = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return value.is_integer() and low <= value <= high


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
