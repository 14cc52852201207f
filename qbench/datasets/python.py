"""A function of the user's own: ``{python: file.py:load, args: {...}}``.

``load(split, **args)`` returns ``(inputs, labels)`` or a dict with ``inputs``, ``labels`` and perhaps ``ids``, or
batches of these: a DataLoader, a generator, a list (``batches``).
A tuple as inputs means one array per model input; labels may be None. The function may carry attributes:
``load.splits = ("train", "val")`` (default train and test), ``load.classes = 10`` and
``load.preprocessing = {"scale": "1/255", "mean": [...], "std": [...], "to_float": True}``; the options
``classes``, ``scale``, ``mean``, ``std`` and ``to_float`` in the suite go before them. ``load.note`` is what a reader
of the results must know of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbench import user_code
from qbench.datasets import batches
from qbench.datasets import options as opt
from qbench.datasets.base import Dataset, Examples
from qbench.datasets.preprocessing import Preprocessing, read_preprocessing
from qbench.datasets.splits import SPLITS
from qbench.datasets.validation import check_dataset, read_inputs, read_labels, require_split
from qbench.errors import DataError


class PythonData(Dataset):
    """What a user's function returns for each split."""

    def __init__(self, file: Path, attribute: str, name: str, options: opt.PythonOptions) -> None:
        self.name = name
        self.file = file
        self.function = _function(file, attribute)
        self.args = options.args
        where = f"{file}:{attribute}"
        self.splits = _splits(getattr(self.function, "splits", SPLITS), where)
        classes = {"classes": getattr(self.function, "classes", None)} | options.list_given(opt.ClassOptions)
        self.classes = opt.read(opt.ClassOptions, classes, "python").classes
        self.preprocessing = _preprocessing(getattr(self.function, "preprocessing", {}), options, where)
        self.notes = _read_notes(getattr(self.function, "note", None), where)

    def load(self, split: str) -> Examples:
        """What the function returns for the split; ids are ``<split>[<position>]`` unless it gives some."""
        require_split(self, split)
        where = f"{self.name}: split '{split}'"

        def read() -> Any:  # batches run the user's code as they are read
            result = self.function(split, **self.args)
            return batches.join(result, where) if batches.are_batches(result) else result

        inputs, labels, ids = _split_result(user_code.call(read, path=self.file, error=DataError), where)
        if isinstance(inputs, Mapping):
            names = ", ".join(map(str, inputs)) or "nothing"
            raise DataError(
                f"{where}: inputs: expected arrays, got a dict of {names}: several inputs go into a tuple, in the "
                "order in which the network takes them: return (first, second), labels"
            )
        several = inputs if isinstance(inputs, tuple) else (inputs,)
        arrays = tuple(np.atleast_1d(read_inputs(example, f"{where}: inputs")) for example in several)
        count = len(arrays[0]) if arrays else 0
        examples = Examples(
            inputs=arrays,
            labels=None if labels is None else np.atleast_1d(read_labels(labels, f"{where}: labels")),
            ids=tuple(f"{split}[{i}]" for i in range(count)) if ids is None else tuple(map(str, ids)),
        )
        check_dataset(self, split, examples)
        return examples


def _function(file: Path, attribute: str) -> Callable[..., Any]:
    function = user_code.attribute(file, attribute, error=DataError)
    if not callable(function):
        raise DataError(f"{file}: '{attribute}' is {type(function).__name__}, not a function load(split, **args)")
    return function  # type: ignore[no-any-return]  # callable() narrows Any to a callable of nothing known


def _split_result(result: Any, where: str) -> tuple[Any, Any, Any]:
    if isinstance(result, Mapping):
        extra = sorted(set(map(str, result)) - {"inputs", "labels", "ids"})
        if "inputs" not in result or extra:
            names = ", ".join(map(str, result)) or "nothing"
            raise DataError(f"{where}: the dict needs 'inputs' and may have 'labels' and 'ids'; it has {names}")
        return result["inputs"], result.get("labels"), result.get("ids")
    if isinstance(result, tuple) and len(result) == 2:
        return result[0], result[1], None
    returned = _describe_result(result)
    raise DataError(f"{where}: expected (inputs, labels), a dict with these keys, or batches of them, got {returned}")


def _describe_result(result: Any) -> str:
    """What came instead, and what to return in its place."""
    if isinstance(result, tuple):
        more = "; several inputs go into a tuple of their own: return (first, second), labels" if result else ""
        return f"a tuple of {len(result)}{more}"
    name = type(result).__name__
    if hasattr(result, "__array__"):
        return f"one {name}: return it with its labels, `return inputs, labels`, or `return inputs, None` without any"
    if hasattr(result, "__getitem__") and hasattr(result, "__len__") and not isinstance(result, str | bytes):
        return f"a {name}: return whole arrays, `return np.stack([x for x, _ in data]), np.array([y for _, y in data])`"
    return "nothing (is a `return` missing?)" if result is None else name


def _splits(value: Any, where: str) -> tuple[str, ...]:
    splits = tuple(value) if isinstance(value, list | tuple) else ()
    if not splits or not all(isinstance(split, str) and split for split in splits):
        raise DataError(f"{where}: splits: expected names such as ('train', 'test'), got {value!r}")
    return splits


def _read_notes(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: note: expected a text, got {value!r}")
    return (" ".join(value.split()),)


def _preprocessing(written: Any, options: opt.PythonOptions, where: str) -> Preprocessing:
    """As the function's attribute says, but for what the suite gives."""
    if not isinstance(written, Mapping) or not all(isinstance(name, str) for name in written):
        raise DataError(f"{where}: preprocessing: expected a mapping of names to values, got {written!r}")
    scaling = {key: value for key, value in written.items() if key != "to_float"}
    scaling |= options.list_given(opt.ScalingOptions)
    to_float = written.get("to_float", True)
    if not isinstance(to_float, bool):
        raise DataError(f"{where}: preprocessing: to_float: expected True or False, got {to_float!r}")
    return read_preprocessing(
        opt.read(opt.ScalingOptions, scaling, f"{where}: preprocessing"),
        to_float=options.to_float if "to_float" in options.model_fields_set else to_float,
    )


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The function's data; imports the user's file, does not call the function yet."""
    keys = opt.read(opt.PythonOptions, options)
    file, attribute = user_code.parse(value, base=base, error=DataError)
    return PythonData(file, attribute, f"python:{value}", keys)
