"""What a user's function gives batch by batch (a DataLoader, a generator, a list), as whole arrays."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from qbench.datasets.base import Array
from qbench.datasets.boxes import are_boxes
from qbench.datasets.validation import read_inputs, read_labels
from qbench.errors import DataError

KEYS = ("inputs", "labels", "ids")
_FORMS = "expected (inputs, labels), inputs alone, or a dict of inputs, labels and ids"


def are_batches(result: Any) -> bool:
    """Whether this is to be read batch by batch: it can be iterated, and is no array, pair or dict of the whole."""
    whole = isinstance(result, Mapping | tuple | str | bytes) or hasattr(result, "__array__")
    return hasattr(result, "__iter__") and not whole


def join(result: Iterable[Any], where: str) -> dict[str, Any]:
    """``inputs`` (an array per input of the network), ``labels`` and ``ids`` (None where there are none) of all
    batches, one after the other. Raises ``DataError`` that names the batch."""
    if isinstance(result, list) and len(result) == 2 and all(map(_is_array, result)):
        raise DataError(f"{where}: got a list of two arrays: return a tuple, `return inputs, labels`")
    parts: list[tuple[tuple[Array, ...], Array | None, list[str] | None]] = []
    if getattr(result, "num_workers", 0):  # of a DataLoader: no process of qbench's may have such children
        vars(result).update(num_workers=0, timeout=0)
    with _same_every_time():
        for number, batch in enumerate(result):
            parts.append(_read(batch, f"{where}: batch {number}", type(result).__name__))
            _require_alike(parts[0], parts[-1], number, where)
    if not parts:
        raise DataError(
            f"{where}: the {type(result).__name__} gave no batch; is its data empty, or was it read before?"
        )
    return {
        "inputs": tuple(np.concatenate(arrays) for arrays in zip(*(inputs for inputs, _, _ in parts), strict=True)),
        "labels": _joined([labels for _, labels, _ in parts]),
        "ids": None if parts[0][2] is None else [name for _, _, ids in parts for name in ids or ()],
    }


def _joined(labels: list[Array | None]) -> Array | None:
    there = [array for array in labels if array is not None]
    if there and _are_ragged(there[0]):
        longest = max(array.shape[1] for array in there)
        behind = [[(0, 0), (0, longest - array.shape[1]), *[(0, 0)] * (array.ndim - 2)] for array in there]
        there = [np.pad(array, width, constant_values=-1) for array, width in zip(there, behind, strict=True)]
    return np.concatenate(there) if there else None


def _are_ragged(labels: Array) -> bool:
    """Whether each batch may have as many rows as its longest example: boxes, and rows of whole numbers."""
    return are_boxes(labels) or (labels.ndim == 2 and labels.dtype.kind in "iu")


@contextmanager
def _same_every_time() -> Iterator[None]:
    """A loader that shuffles draws by torch's generator: from one seed, so that every run has the same examples in the
    same order."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _read(batch: Any, where: str, source: str) -> tuple[tuple[Array, ...], Array | None, list[str] | None]:
    inputs, labels, ids = _split(batch, where, source)
    several = (
        inputs if isinstance(inputs, tuple) or (isinstance(inputs, list) and all(map(_is_array, inputs))) else None
    )
    arrays = tuple(read_inputs(array, f"{where}: inputs") for array in ((inputs,) if several is None else several))
    if labels is not None and not isinstance(labels, list | tuple) and np.ndim(labels) == 0:
        raise DataError(
            f"{where} is a single example ({source}): give batches, as DataLoader(data, batch_size=64) does, or return "
            "whole arrays, `return np.stack([x for x, _ in data]), np.array([y for _, y in data])`"
        )
    read = None if labels is None else read_labels(labels, f"{where}: labels")
    counts = [array.shape[0] if array.ndim else 1 for array in (*arrays, *(() if read is None else (read,)))]
    if len(set(counts)) > 1:
        raise DataError(f"{where}: inputs and labels are of different numbers of examples: {counts}")
    return tuple(map(np.atleast_1d, arrays)), read, None if ids is None else list(map(str, ids))


def _split(batch: Any, where: str, source: str) -> tuple[Any, Any, Any]:
    if isinstance(batch, Mapping):
        if "inputs" not in batch or set(batch) - set(KEYS):
            raise DataError(f"{where}: {_FORMS}, got a dict of {', '.join(map(str, batch)) or 'nothing'}")
        return batch["inputs"], batch.get("labels"), batch.get("ids")
    if _is_array(batch):
        return batch, None, None
    if isinstance(batch, tuple | list) and len(batch) in (1, 2):
        return batch[0], batch[1] if len(batch) == 2 else None, None
    kind = f"{type(batch).__name__}{f' of {len(batch)}' if isinstance(batch, tuple | list) else ''}"
    more = "; several inputs go into a tuple of their own, (first, second), labels" if kind[-1].isdigit() else ""
    raise DataError(f"{where} of the {source}: {_FORMS}, got {kind}{more}")


def _require_alike(first: Any, batch: Any, number: int, where: str) -> None:
    """Raises ``DataError`` where a batch does not go behind the first one."""
    forms = [_form(part) for part in (first, batch)]
    if forms[0] != forms[1]:
        raise DataError(
            f"{where}: batch 0 has {forms[0]}, batch {number} has {forms[1]}; give all examples one shape, and labels "
            "to all batches or to none"
        )


def _form(part: tuple[tuple[Array, ...], Array | None, list[str] | None]) -> str:
    inputs, labels, ids = part
    words = [f"inputs {list(array.shape[1:])}" for array in inputs]
    if labels is None:
        words.append("no labels")
    else:
        words.append(f"labels {['any', *labels.shape[2:]] if _are_ragged(labels) else list(labels.shape[1:])}")
    return ", ".join([*words, *([] if ids is None else ["ids"])])


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__")
