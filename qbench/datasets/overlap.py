"""Which examples are the same by content: how a leak from calibration or training into the evaluation is found.

Two examples are the same where the network is given the same values: whatever order their bytes have in memory or in
the file, whether the values lie there as uint8 or as float32, and whether a zero has a sign. Labels do not count.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from qbench.datasets.base import Array, Examples
from qbench.errors import first_names

# Rows are made comparable in blocks of about this many values, so that a large split needs little memory.
BLOCK = 1 << 22
SHOWN = 5


def find_shared(learned_from: Sequence[Examples], examples: Examples) -> dict[int, tuple[int, int]]:
    """Of ``examples`` those whose inputs are also in ``learned_from``: position -> (which of these, position there).

    The first one found is named. 60,000 examples of 3 KB take about half a second.
    """
    kinds = _kinds((*learned_from, examples))
    where: dict[bytes, tuple[int, int]] = {}
    for which, side in enumerate(learned_from):
        for position, content in enumerate(_hashes(side, kinds)):
            where.setdefault(content, (which, position))
    return {i: where[content] for i, content in enumerate(_hashes(examples, kinds)) if content in where}


def describe_pairs(examples: Examples, shared: Mapping[int, tuple[int, int]], learned_from: Sequence[Examples]) -> str:
    """The first that ``find_shared`` gives, by their ids, each with the id of what it equals where that is another."""
    names = []
    for here, (which, there) in shared.items():
        name = examples.ids[here] if examples.ids else f"example {here}"
        other = learned_from[which].ids[there] if learned_from[which].ids else name
        names.append(name if other == name else f"{name} (= {other})")
    return first_names(names, SHOWN)


def find_repeated(examples: Examples) -> int:
    """How many examples have the same inputs as an earlier one."""
    return sum(count - 1 for count in Counter(_hashes(examples, _kinds((examples,)))).values())


def digest_examples(examples: Examples) -> Array:
    """16 bytes a row (uint8, n x 16) that name the inputs of each example, the same wherever and however they are
    stored: a gate finds the examples of its baseline by them."""
    kinds = [_common(array.dtype) for array in examples.inputs]
    rows = [content[:16] for content in _hashes(examples, kinds)]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, 16)


def _common(kind: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which values of this one are compared with those of another file: what float32 holds exactly is
    compared as that, wider whole numbers as int64."""
    wide = kind.kind in "iu" and kind.itemsize > 2
    return np.dtype(np.int64 if wide else np.float32)


def _kinds(sides: Sequence[Examples]) -> list[np.dtype[Any]]:
    """Of each input the type in which all sides are compared.

    Floats are compared as float32, as which preprocessing hands them to the network, and so are whole numbers beside
    floats; whole numbers of two widths as int64.
    """
    inputs = zip(*(side.inputs for side in sides), strict=True)
    return [_kind({array.dtype.newbyteorder("=") for array in arrays}) for arrays in inputs]


def _kind(types: set[np.dtype[Any]]) -> np.dtype[Any]:
    if any(kind.kind == "f" for kind in types):
        return np.dtype(np.float32)
    return next(iter(types)) if len(types) == 1 else np.dtype(np.int64)


def _hashes(examples: Examples, kinds: Sequence[np.dtype[Any]]) -> Iterator[bytes]:
    """The sha256 of the inputs of each example."""
    rows = [_rows(array, kind) for array, kind in zip(examples.inputs, kinds, strict=True)]
    for parts in zip(*rows, strict=True):
        sha = hashlib.sha256(parts[0])
        for part in parts[1:]:  # with its length, or the end of one input could pass for the beginning of the next
            sha.update(part.nbytes.to_bytes(8, "little"))
            sha.update(part)
        yield sha.digest()


def _rows(array: Array, kind: np.dtype[Any]) -> Iterator[Array]:
    """Each example as contiguous values of that type."""
    step = max(1, BLOCK // max(1, array[:1].size))
    for start in range(0, len(array), step):
        block = array[start : start + step]
        flat = np.ascontiguousarray(block.reshape(len(block), -1), dtype=kind)
        yield from flat + kind.type(0) if kind.kind == "f" else flat  # -0.0 + 0.0 is 0.0
