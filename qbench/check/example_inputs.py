"""Random inputs of the shapes that a file declares, or that a person names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import UsageError
from qbench.quant.artifacts.onnx_file import DeclaredInput

Array = NDArray[Any]
_SHAPE = re.compile(r"(?:(?P<name>.+)=)?(?P<sizes>[1-9]\d*(?:x[1-9]\d*)*|scalar)")
_MOST_VALUES = 2**28  # a gigabyte of floats
_TYPES = ("float16", "float32", "float64", "bool", "int8", "uint8", "int32", "int64")


def read_shapes(texts: Sequence[str]) -> dict[str | None, tuple[int, ...]]:
    """``ids=1x128`` -> {"ids": (1, 128)}; of ``1x3x224x224`` the name is None: of the only input. Raises
    ``UsageError``."""
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


def make_inputs(declared: Sequence[DeclaredInput], shapes: Mapping[str | None, tuple[int, ...]]) -> tuple[Array, ...]:
    """An array for each input. A free first axis is 1. Floats are normal, integers 0 or 1: both are in range for masks,
    token types and ids.

    Raises ``UsageError`` where another axis is free and no shape is named, or a named one does not fit.
    """
    names = [entry.name for entry in declared]
    only = names[0] if len(names) == 1 else None
    named = {(only if name is None else name): sizes for name, sizes in shapes.items()}
    unknown = [name for name in named if name not in names]
    if unknown:
        which = "one without a name" if unknown[0] is None else unknown[0]
        raise UsageError(f"--shape: no input is called {which}; the inputs are {', '.join(names)}")
    rng, arrays, free = np.random.default_rng(0), [], []
    for entry in declared:
        sizes = " x ".join(str(size or "?") for size in entry.sizes)
        shape = named.get(entry.name) or _complete(entry.sizes)
        if shape is None:
            free.append(f"{entry.name} ({sizes or 'any shape'})")
            continue
        if entry.name in named and not _fits(shape, entry.sizes):
            raise UsageError(f"--shape {entry.name}: {_text(shape)} does not fit {sizes}")
        arrays.append(_fill(rng, entry, shape))
    if free:
        first = free[0].split(" (")[0]
        raise UsageError(
            f"the size of {', '.join(free)} is not fixed in the file: say it, as in --shape {first}=1x128, for each"
        )
    return tuple(arrays)


def _complete(sizes: Sequence[Any]) -> tuple[int, ...] | None:
    fixed = [size if isinstance(size, int) and size > 0 else None for size in sizes]
    if fixed and fixed[0] is None:
        fixed[0] = 1
    return None if any(size is None for size in fixed) else tuple(size for size in fixed if size is not None)


def _fits(shape: Sequence[int], sizes: Sequence[Any]) -> bool:
    return len(shape) == len(sizes) and all(
        own == size for own, size in zip(shape, sizes, strict=True) if isinstance(size, int) and size > 0
    )


def _fill(rng: Any, entry: DeclaredInput, shape: tuple[int, ...]) -> Array:
    if entry.dtype not in _TYPES:
        what = "no tensor" if entry.dtype is None else f"a tensor of {entry.dtype}"
        raise UsageError(f"{entry.name} is {what}, of which random values say nothing")
    if np.prod(shape, dtype=np.float64) > _MOST_VALUES:
        raise UsageError(f"--shape: {entry.name} would have {_text(shape)} values; name a smaller one")
    dtype = np.dtype(entry.dtype)
    if np.issubdtype(dtype, np.floating):
        return np.asarray(rng.standard_normal(shape), dtype)
    return np.asarray(rng.integers(0, 2, shape), dtype)


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
