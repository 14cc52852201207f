"""What every data set promises of its examples, checked in one place for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from qbench import registry
from qbench.datasets.base import Array, Dataset, Examples
from qbench.datasets.boxes import CLASS, COLUMNS, are_boxes, join_boxes
from qbench.errors import DataError, first_names

NUMERIC = "biuf"
SHOWN = 5
FILL_INPUTS = (
    "fill all up to one, `longest = max(map(len, rows)); np.array([[*row] + [0] * (longest - len(row)) for row in "
    "rows])` for rows of tokens, with a mask as the next input where the network takes one"
)
FILL_LABELS = "give every example as many, or return None in place of the labels, and int8 is compared with fp32"
# Rows are looked at in blocks of about this many numbers, so that a check needs little memory.
BLOCK = 1 << 22


def check_dataset(dataset: Dataset, split: str, examples: Examples) -> None:
    """Raises ``DataError`` with the split, the examples and what to do if these examples cannot be used."""
    require_split(dataset, split)
    where = f"{dataset.name}: split '{split}'"
    if not examples.inputs:
        raise DataError(f"{where}: it has no inputs")
    for position, array in enumerate(examples.inputs):
        _check_input(array, f"{where}: inputs" + (f"[{position}]" if len(examples.inputs) > 1 else ""))
    counts = {len(array) for array in examples.inputs}
    if len(counts) > 1:
        raise DataError(f"{where}: the inputs have different numbers of examples: {sorted(counts)}")
    if len(examples) == 0:
        raise DataError(f"{where}: it is empty; a split needs at least one example")
    if examples.ids and len(examples.ids) != len(examples):
        raise DataError(f"{where}: {len(examples)} examples but {len(examples.ids)} ids; give one id for each")
    _check_finite(examples, where)
    _check_channels(dataset, examples, where)
    if examples.labels is not None:
        _check_labels(examples, examples.labels, dataset.classes, where)


def require_alike(dataset: Dataset, splits: Mapping[str, Examples]) -> None:
    """Raises ``DataError`` where one network could not take the examples of all these splits."""
    forms = {split: [array.ndim for array in examples.inputs] for split, examples in splits.items()}
    if len({str(form) for form in forms.values()}) > 1:
        shapes = "; ".join(f"split '{split}': {_shapes(examples)}" for split, examples in splits.items())
        raise DataError(f"{dataset.name}: one network cannot take both: {shapes}; give both splits the same axes")


def _shapes(examples: Examples) -> str:
    shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in examples.inputs)
    return f"{len(examples.inputs)} {'input' if len(examples.inputs) == 1 else 'inputs'}, {shapes}"


def require_split(dataset: Dataset, split: str) -> None:
    """Raises ``DataError`` that lists the splits there are when this one is not among them."""
    if split not in dataset.splits:
        hint = registry.suggest(split, dataset.splits) or ";"
        raise DataError(f"{dataset.name}: no split '{split}'{hint} there are: {', '.join(dataset.splits)}")


def read_labels(raw: Any, where: str) -> Array:
    """The labels as int64 or floats, ``(n, 1)`` flattened to ``(n,)``; refuses text and objects. A list with boxes
    (m, 6), or with whole numbers, for each example, as many as it has, is filled up with -1."""
    filled = _fill_ragged(raw)
    if filled is not None:
        return filled
    array = _array(raw, f"{where}:", FILL_LABELS)
    if array.dtype.kind not in NUMERIC:
        raise DataError(
            f"{where}: labels must be numbers, these are {_kind(array)}; write class names as 0, 1, 2 … "
            "in the order of the model's outputs"
        )
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    return array if array.dtype.kind == "f" else array.astype(np.int64)


def _fill_ragged(raw: Any) -> Array | None:
    """Labels of different lengths as one array; None where they are of one, or neither boxes nor whole numbers."""
    if not isinstance(raw, list | tuple) or not all(isinstance(label, list | tuple | np.ndarray) for label in raw):
        return None
    try:
        parts = [np.asarray(label) for label in raw]
    except ValueError:
        return None
    if len({part.shape for part in parts}) < 2:
        return None
    full = [part for part in parts if part.size]
    if all(part.ndim == 2 and part.shape[1] == COLUMNS and part.dtype.kind in "iuf" for part in full):
        return join_boxes([part.reshape(-1, COLUMNS) for part in parts])
    if all(part.ndim == 1 and part.dtype.kind in "iu" for part in full):
        filled = np.full((len(parts), max(map(len, parts))), -1, dtype=np.int64)
        for row, part in zip(filled, parts, strict=True):
            row[: len(part)] = part
        return filled
    return None


def read_inputs(raw: Any, where: str) -> Array:
    """One input of the model as an array of numbers, first axis = example; refuses text and objects."""
    array = _array(raw, f"{where}:", FILL_INPUTS)
    if array.dtype.kind not in NUMERIC:
        raise DataError(f"{where}: inputs must be numbers, these are {_kind(array)}")
    return array


def _array(raw: Any, where: str, way_out: str) -> Array:
    try:
        array = np.asarray(raw)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors that need a gradient
        if lengths := _differing_lengths(raw):
            raise DataError(f"{where} {lengths}: {way_out}") from error
        raise DataError(f"{where} cannot be made an array: {error}") from error
    if array.dtype.kind == "O" and (lengths := _differing_lengths(raw)):
        raise DataError(f"{where} {lengths}: {way_out}")
    return array


def _differing_lengths(raw: Any) -> str | None:
    """Which two examples are of different shapes, or hold rows that are; None where all are of one."""
    shapes = [_shape_of(example) for example in raw] if np.iterable(raw) else []
    position = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if position is not None:
        first, later = (list(shapes[i]) for i in (0, position))
        return f"examples have different lengths: example 0 is {first}, example {position} is {later}"
    return "the rows of an example have different lengths" if any(None in shape for shape in shapes) else None


def _shape_of(example: Any) -> tuple[int | None, ...]:
    """The shape of an array or of nested lists; None stands for the lengths below an axis where they differ."""
    if not isinstance(example, list | tuple | np.ndarray) or (isinstance(example, np.ndarray) and example.dtype != "O"):
        return tuple(getattr(example, "shape", ()))
    below = {_shape_of(item) for item in example}
    return (len(example), *(below.pop() if len(below) == 1 else (None,) if below else ()))


def _kind(array: Array) -> str:
    names = {
        "O": "Python objects (or rows of different lengths)",
        "U": "text",
        "S": "bytes",
        "c": "complex numbers",
    }
    return names.get(array.dtype.kind, f"of type {array.dtype}")


def _check_input(array: Array, where: str) -> None:
    if array.dtype.kind not in NUMERIC:
        raise DataError(f"{where} must be numbers, these are {_kind(array)}")
    if array.ndim == 0:
        raise DataError(f"{where}: a single number; expected an array with one row per example")
    if len(array) and array[:1].size == 0:
        raise DataError(f"{where}: its examples hold no value: the array has shape {array.shape}; give values")


def _check_finite(examples: Examples, where: str) -> None:
    bad = np.zeros(len(examples), dtype=bool)
    for array in examples.inputs:
        for rows in _blocks(array):
            bad[rows] |= ~np.isfinite(array[rows]).reshape(rows.stop - rows.start, -1).all(axis=1)
    if bad.any():
        raise DataError(
            f"{where}: {bad.sum()} of {len(bad)} examples have NaN or infinite inputs: "
            f"{_name_examples(examples, np.flatnonzero(bad))}; "
            "remove them or correct the values"
        )


def _blocks(array: Array) -> Iterator[slice]:
    if array.dtype.kind != "f":
        return
    step = max(1, BLOCK // array[0].size)
    for start in range(0, len(array), step):
        yield slice(start, min(start + step, len(array)))


def _check_channels(dataset: Dataset, examples: Examples, where: str) -> None:
    """Three means on one channel would broadcast to three channels without a word."""
    preprocessing = dataset.preprocessing
    channels = max(len(preprocessing.mean), len(preprocessing.std))
    axis = preprocessing.channel_axis
    for array in examples.inputs:
        if channels > 1 and preprocessing.to_float and (array.ndim <= abs(axis) or array.shape[axis] != channels):
            raise DataError(
                f"{where}: mean and std have {channels} channels, but axis {axis} of the inputs of shape "
                f"{array.shape} does not; give one number, or one per channel"
            )


def _check_labels(examples: Examples, labels: Array, classes: int | None, where: str) -> None:
    if labels.dtype.kind not in NUMERIC:
        raise DataError(f"{where}: labels must be numbers, these are {_kind(labels)}")
    if labels.ndim == 0 or len(labels) != len(examples):
        count = len(labels) if labels.ndim else 1
        raise DataError(f"{where}: {len(examples)} inputs but {count} labels; every example needs one label")
    if labels.dtype.kind == "f":
        _check_finite_labels(examples, labels, where)
    if classes is None:
        return
    if are_boxes(labels):
        _check_boxes(examples, labels, classes, where)
        return
    if labels.ndim == 3 and labels.dtype.kind in "iu":  # masks; -1: nobody says
        _check_masks(examples, labels, classes, where)
        return
    if labels.ndim > 1 or labels.dtype.kind == "f":
        raise DataError(
            f"{where}: labels of {classes} classes must be whole numbers of shape ({len(labels)},), these are "
            f"{labels.dtype} of shape {labels.shape}"
        )
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if outside.size:
        values = sorted({int(value) for value in labels[outside]})
        raise DataError(
            f"{where}: {outside.size} labels are outside the {classes} classes 0 to {classes - 1}: "
            f"{first_names(values, SHOWN)} (examples {_name_examples(examples, outside)}); correct them or `classes`"
        )


def _check_boxes(examples: Examples, labels: Array, classes: int, where: str) -> None:
    bad = np.flatnonzero([not np.isin(boxes[:, CLASS], range(-1, classes)).all() for boxes in labels])
    if bad.size:
        raise DataError(
            f"{where}: {bad.size} examples have boxes of other classes than 0 to {classes - 1} (-1: no box), in the "
            f"fifth column: {_name_examples(examples, bad)}; correct them or `classes`"
        )
    sides = labels[..., 2:4] - labels[..., :2]
    bad = np.flatnonzero(((sides < 0).any(axis=2) & (labels[..., CLASS] >= 0)).any(axis=1))
    if bad.size:
        raise DataError(
            f"{where}: {bad.size} examples have boxes that end before they begin: {_name_examples(examples, bad)}; a "
            "box is x1, y1, x2, y2, class, crowd"
        )


def _check_masks(examples: Examples, labels: Array, classes: int, where: str) -> None:
    bad = np.flatnonzero([int(mask.max(initial=0)) >= classes or int(mask.min(initial=0)) < -1 for mask in labels])
    if bad.size:
        values = sorted({int(value) for value in np.unique(labels[bad]) if not -1 <= value < classes})
        raise DataError(
            f"{where}: {bad.size} masks hold other numbers than those of the {classes} classes, 0 to {classes - 1}: "
            f"{first_names(values, SHOWN)} (examples {_name_examples(examples, bad)}); correct them, `classes`, or "
            "`ignore`, the number of pixels of which nobody says what they are"
        )


def _check_finite_labels(examples: Examples, labels: Array, where: str) -> None:
    bad = np.flatnonzero(~np.isfinite(labels).reshape(len(labels), -1).all(axis=1))
    if bad.size:
        raise DataError(f"{where}: {bad.size} labels are NaN or infinite: {_name_examples(examples, bad)}; remove them")


def _name_examples(examples: Examples, index: Array) -> str:
    return first_names((examples.ids[i] if examples.ids else f"example {i}" for i in index), SHOWN)
