"""What ``--data`` names -> calibration batches: a folder of images, an .npz, a Python function, a data set by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry, user_code
from qbench.datasets import options as opt
from qbench.datasets.base import Dataset, positions
from qbench.datasets.image import ENDINGS, read_images, read_preprocessing, shape_of
from qbench.datasets.preprocessing import Preprocessing
from qbench.errors import DataError, ModelError
from qbench.files import npz_file, regular_file
from qbench.quant.artifacts import onnx_check
from qbench.quant.onnx import graph_process
from qbench.quant.onnx.formats.rules import BATCH_SIZE, EXAMPLES

Array = NDArray[Any]
Batch = Mapping[str, Array] | tuple[Array, ...]
PATHS = ("idx", "image-folder", "npz", "python")  # data sets that are found by a path, not by their name


@dataclass(frozen=True, kw_only=True)
class Input:
    """An input of the model: ``shape`` with None where any size goes."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Calibration data. ``examples``: how many there are, None where a function makes the batches itself;
    ``read`` gives those at some positions as the model takes them."""

    name: str
    examples: int | None
    read: Callable[[Array], Batch]
    open_batches: Callable[[], Iterable[Any]] | None = None

    def batches(
        self, number: int, size: int, *, seed: int = 0, fixed: int | None = None
    ) -> Callable[[], Iterable[Any]]:
        """What makes the batches, one pass a call: ``number`` of ``size`` examples drawn by ``seed``, fewer where
        there are not that many. A function's own batches are as it makes them. ``fixed``: the size that the model
        demands, None: any."""
        if self.open_batches is not None:
            return self.open_batches
        available = self.examples or 0
        wanted = min(number, available // size) * size
        if wanted == 0:
            raise DataError(f"{self.name}: {available} examples, a batch has {size}; {_remedy(available, fixed)}")
        index = positions(available, wanted, seed)

        def one_pass() -> Iterator[Batch]:
            for start in range(0, wanted, size):
                yield self.read(index[start : start + size])

        return one_pass


def shaped(source: Source, number: int | None, size: int | None, fixed: int | None) -> tuple[int, int]:
    """How many batches of how many examples: as asked for, else of what the model demands (``fixed``), else such that
    ``EXAMPLES`` are used, or all where there are fewer."""
    if source.open_batches is not None:
        return number or _counted(source.open_batches()), 1
    available = source.examples or 0
    if size is None:
        size = fixed or max(1, min(BATCH_SIZE, available // (number or 1)))
    return number or max(1, min(math.ceil(EXAMPLES / size), available // size)), size


def _remedy(available: int, fixed: int | None) -> str:
    """What to do where a batch has more examples than there are."""
    if fixed is None:
        return "give more data or lower --batch-size"
    if fixed <= available:
        return f"the model takes {fixed} at once: leave --batch-size out"
    return f"the model takes {fixed} at once: give at least {fixed} examples, or export it with a dynamic batch axis"


def _counted(batches: Iterable[Any]) -> int:
    """How many batches hold the first ``EXAMPLES``."""
    examples = count = 0
    for batch in batches:
        arrays = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else [batch]
        examples += len(np.atleast_1d(next(iter(arrays))))
        count += 1
        if examples >= EXAMPLES:
            break
    return max(count, 1)


def inputs(graph: Any) -> tuple[Input, ...]:
    """What a ``Graph`` takes, in order."""
    import onnx

    values = {value.name: value.type.tensor_type for value in graph.model.graph.input}
    for name in graph.inputs:
        if not values[name].elem_type:
            raise ModelError(f"input {name} is no tensor, and only tensors can be calibrated")
    return tuple(
        Input(
            name=name,
            shape=tuple(size.dim_value or None for size in values[name].shape.dim),
            dtype=np.dtype(onnx.helper.tensor_dtype_to_np_dtype(values[name].elem_type)),
        )
        for name in graph.inputs
    )


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a model takes: its inputs, and the batch size that it demands (None: any)."""

    inputs: tuple[Input, ...]
    batch_size: int | None


def wanted(graph: Any) -> Wanted:
    """What a ``Graph`` takes."""
    from qbench.quant.onnx.formats.defaults import fixed_batch

    return Wanted(inputs=inputs(graph), batch_size=fixed_batch(graph))


def wanted_by_model(file: Path) -> Wanted:
    """What a model file takes; raises ``ModelError``. A large file is read in a process of its own."""
    wanted: Wanted = graph_process.run(file, _of_model, file)
    return wanted


def wanted_by_calibration(file: Path) -> tuple[Wanted, int]:
    """What a calibration model takes, and how many batches; raises ``ModelError``. A large file is read in a process
    of its own."""
    wanted: tuple[Wanted, int] = graph_process.run(file, _of_calibration, file)
    return wanted


def _of_model(file: Path) -> Wanted:
    from qbench.quant.onnx.graph.graph import Graph

    with onnx_check.name_file_in_errors(file, kind=ModelError):
        return wanted(Graph.load(file))


def _of_calibration(file: Path) -> tuple[Wanted, int]:
    from qbench.quant.onnx.formats import calibration_file

    model = calibration_file.read(file)
    return wanted(model.graph()), model.config.batch_num


def open_source(where: str, wanted: tuple[Input, ...], options: Mapping[str, Any], split: str | None = None) -> Source:
    """The data that ``where`` names. Raises ``DataError`` with what to do where it is not there or does not fit."""
    path = regular_file.expand_home(where)
    if path.is_dir():
        return _images(path, wanted, dict(options), split)
    if path.suffix == ".npz":
        return _arrays(path, wanted, options, split)
    if ":" in where and where.rpartition(":")[0].endswith(".py"):
        return _python(where, wanted, options, split)
    named = [name for name in registry.names("dataset") if name not in PATHS]
    if where in named:
        return _dataset(where, None, wanted, options, split)
    raise DataError(
        f"--data {where}: no such folder; give a folder of images, an .npz file, file.py:function, or the name of a "
        f"data set ({', '.join(named)})"
    )


def _images(folder: Path, wanted: tuple[Input, ...], options: Mapping[str, Any], split: str | None) -> Source:
    """Every image below the folder (below ``train``, or the split asked for, where it has one), read batch by batch,
    in the size and layout that the model takes. As in the data set ``image-folder``: short side resized, centre crop.
    """
    if len(wanted) != 1 or len(wanted[0].shape) != 4:
        raise DataError(f"--data {folder}: images are for a model with one input of 4 dimensions; give an .npz instead")
    keys = _read_images(options, wanted[0], folder)
    shape, preprocessing = shape_of(keys), read_preprocessing(keys)
    place = folder / (split or "train")
    if split and not place.is_dir():
        raise DataError(f"--data {folder}: no folder {split} in it; leave --split out to take every image")
    place = place if place.is_dir() else folder
    files = sorted(
        file for file in place.rglob("*") if file.suffix.lower() in ENDINGS and not file.name.startswith(".")
    )
    if not files:
        raise DataError(f"--data {place}: no images; read are {', '.join(ENDINGS)}")

    def read(index: Array) -> Batch:
        images = read_images([files[i] for i in index], shape, f"--data {folder}")
        return _preprocess((images,), wanted, preprocessing)

    return Source(name=f"--data {folder}", examples=len(files), read=read)


def _read_images(options: Mapping[str, Any], wanted: Input, folder: Path) -> opt.ImageOptions:
    """What images become: as the options say, else as the input has it."""
    _, a, b, c = wanted.shape
    last = c in (1, 3) and a not in (1, 3)
    layout = options.get("layout", "nhwc" if last else "nchw")
    height, width, channels = (a, b, c) if layout == "nhwc" else (b, c, a)
    if options.get("size") is None and (height is None or width is None):
        opt.read(opt.ImageOptions, {key: value for key, value in options.items() if key != "resize"})
        raise DataError(f"--data {folder}: input {wanted.name} of the model takes any size; say which: --set size=224")
    of_input = {"layout": layout, "size": [height, width], "channels": channels if channels in (1, 3) else 3}
    return opt.read(opt.ImageOptions, {**of_input, **options})


def _arrays(path: Path, wanted: tuple[Input, ...], options: Mapping[str, Any], split: str | None) -> Source:
    """Arrays named like the model's inputs, taken as they are; otherwise the splits of an npz data set."""
    if (why := regular_file.explain_unusable(path)) is not None:
        raise DataError(f"--data {path}: {why}")
    try:
        if not set(npz_file.names(path)) >= {value.name for value in wanted}:
            return _dataset("npz", str(regular_file.real_path(path)), wanted, options, split)
        arrays = npz_file.read(path, [value.name for value in wanted])
    except npz_file.BadNpz as error:
        key = f": {error.key}" if error.key else ""
        raise DataError(f"--data {path}{key}: not an .npz file of arrays of numbers ({error})") from error
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise DataError(f"--data {path}: arrays of different lengths: {lengths}; the first axis counts the examples")
    return Source(
        name=f"--data {path}",
        examples=next(iter(lengths.values())),
        read=lambda index: {name: array[index] for name, array in arrays.items()},
    )


def _python(where: str, wanted: tuple[Input, ...], options: Mapping[str, Any], split: str | None) -> Source:
    """A function without parameters makes the batches; one that takes a split is a data set."""
    file, name = user_code.parse(where, base=Path.cwd(), error=DataError)
    function = user_code.attribute(file, name, error=DataError)
    if not callable(function):
        raise DataError(f"--data {where}: {name} is {type(function).__name__}, not a function")
    needed = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
    ]
    if [name for name in needed if name.kind not in (name.VAR_POSITIONAL, name.VAR_KEYWORD)]:
        return _dataset("python", where, wanted, options, split)
    if options:
        raise DataError(f"--data {where}: a function that makes the batches takes no --set {next(iter(options))}")

    def one_pass() -> Iterable[Any]:
        batches: Iterable[Any] = user_code.call(function, path=file, error=DataError)
        return batches

    return Source(name=f"--data {where}", examples=None, read=lambda _: (), open_batches=one_pass)


def _dataset(
    kind: str, value: str | None, wanted: tuple[Input, ...], options: Mapping[str, Any], split: str | None
) -> Source:
    held: Dataset = registry.load("dataset", kind)(value, base=Path.cwd(), options=options)
    examples = held.load(_split(held, split))

    def read(index: Array) -> Batch:
        return _preprocess(examples.take(index).inputs, wanted, held.preprocessing)

    return Source(name=f"--data {value or kind}", examples=len(examples), read=read)


def _split(held: Dataset, split: str | None) -> str:
    """The split to calibrate on: as asked for, else train."""
    chosen = split or ("train" if "train" in held.splits else held.splits[0])
    if chosen not in held.splits:
        raise DataError(f"{held.name}: no split '{chosen}'; there are {', '.join(held.splits)}")
    return chosen


def _preprocess(arrays: tuple[Array, ...], wanted: tuple[Input, ...], preprocessing: Preprocessing) -> Batch:
    """Arrays as the model takes them: preprocessed where it takes floats, not scaled where it takes whole numbers."""
    if len(arrays) != len(wanted):
        return arrays
    prepared = []
    for array, declared in zip(arrays, wanted, strict=True):
        to_float = preprocessing.to_float and declared.dtype.kind == "f"
        (array,) = replace(preprocessing, to_float=to_float)((array,))
        prepared.append(
            np.ascontiguousarray(array, declared.dtype) if array.dtype.kind == declared.dtype.kind else array
        )
    return tuple(prepared)
