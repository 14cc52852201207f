"""A data set of Hugging Face's library datasets: ``{huggingface: path or name, text: sentence, label: label}``.

The value is a folder (what ``save_to_disk`` wrote, or parquet, CSV, JSON or arrow files) or else a name on the hub,
which is downloaded into qbench's cache. Exactly one of ``text`` (a column of texts, tokenized as ``tokens`` says),
``image`` (a column of images, with the options of image-folder) and ``inputs`` (columns of numbers, one array for each
input of the model) says what the model gets; left out, a lone column of images or one called ``text``. ``label`` is the
column of labels (default ``label``, if there is one). Further options: ``config`` and ``revision`` on the hub,
``classes``, and ``seed`` and ``test_share`` where it has a single split, which is split into train and test.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qbench.cache import store
from qbench.cache.root import DOWNLOADS
from qbench.datasets import image, tokens
from qbench.datasets import options as opt
from qbench.datasets.base import Array, Dataset, Examples, positions
from qbench.datasets.image import Shape, pixels, shape_of
from qbench.datasets.preprocessing import Preprocessing, read_preprocessing
from qbench.datasets.splits import SPLITS, split_without_twins
from qbench.datasets.validation import check_dataset, read_inputs, read_labels, require_split
from qbench.errors import DataError, out_of_memory
from qbench.files import regular_file

NAME = "huggingface"
COLUMNS = ("text", "image", "inputs")
OF_COLUMN: dict[str, tuple[str, ...]] = {
    "text": tuple(opt.TokenOptions.model_fields),
    "image": tuple(opt.ImageOptions.model_fields),
    "inputs": (*opt.ScalingOptions.model_fields, "to_float"),
}
SAVED = ("state.json", "dataset_dict.json")
OLDEST = 4  # earlier versions run a script that lies in the data's folder


class HuggingFace(Dataset):
    """Splits of one data set; rows are read when asked for."""

    def __init__(self, tables: Mapping[str, Any], name: str, options: opt.HuggingFaceOptions, base: Path) -> None:
        self.name = name
        self.options = options
        self.tables = dict(tables)
        self._lone = next(iter(self.tables)) if len(self.tables) == 1 else None
        self.splits = tuple(self.tables) if self._lone is None else SPLITS
        self._parts: dict[str, Examples] | None = None
        self.kind, self.columns = _columns(self.tables, options)
        _require_used(options, self.kind)
        self.label = _label(self.tables, options)
        self.classes = _classes(self.tables, self.label, options)
        if self.kind == "text":
            self.tokens = tokens.read_tokens(options, base)
            self.preprocessing = Preprocessing(to_float=False)
        elif self.kind == "image":
            self.shape = shape_of(options)
            self.preprocessing = image.read_preprocessing(options)
        else:
            self.preprocessing = read_preprocessing(options, to_float=options.to_float)

    def load(self, split: str) -> Examples:
        """All rows of one split; ids are ``<split>[<row>]``."""
        return self.sample(split, None, 0)

    def sample(self, split: str, samples: int | None, seed: int) -> Examples:
        """``samples`` rows drawn by ``seed``; the others are not read, unless there is a single split."""
        count = self.count(split)
        try:
            index = np.arange(count) if samples is None else positions(count, samples, seed)
        except DataError as error:
            raise DataError(f"{self.name}: split '{split}': {error}") from error
        examples = self._rows(split, index) if self._lone is None else self._apart()[split].take(index)
        check_dataset(self, split, examples)
        return examples

    def count(self, split: str) -> int:
        """The rows of a split; a single one is read, since repeated rows do not count."""
        require_split(self, split)
        return len(self.tables[split]) if self._lone is None else len(self._apart()[split])

    def _apart(self) -> dict[str, Examples]:
        """The two halves of a single split, read once."""
        if self._parts is None:
            assert self._lone is not None
            everything = self._rows(self._lone, np.arange(len(self.tables[self._lone])))
            index = split_without_twins(self.options, everything)
            self._parts = {name: everything.take(rows) for name, rows in index.items()}
        return self._parts

    def _rows(self, split: str, index: Array) -> Examples:
        where = f"{self.name}: split '{split}'"
        rows = self.tables[split].select(index.tolist())
        readers = {"text": self._texts, "image": self._images, "inputs": self._numbers}[self.kind]
        return Examples(
            inputs=readers(rows, where),
            labels=None if self.label is None else _labels(rows, self.label, where),
            ids=tuple(f"{split}[{i}]" for i in index),
        )

    def _texts(self, rows: Any, where: str) -> tuple[Array, ...]:
        texts = list(rows[self.columns[0]])
        wrong = next((i for i, text in enumerate(texts) if not isinstance(text, str) or not text.strip()), None)
        if wrong is not None:
            raise DataError(
                f"{where}: column '{self.columns[0]}' has {texts[wrong]!r} where a text should be; remove it"
            )
        return self.tokens.encode(texts)

    def _images(self, rows: Any, where: str) -> tuple[Array, ...]:
        (name,) = self.columns
        column = rows.select_columns([name])
        images = [_image(column, i, name, self.shape, where) for i in range(len(rows))]
        return (_stacked(images, self.shape, where),)

    def _numbers(self, rows: Any, where: str) -> tuple[Array, ...]:
        arrays = rows.select_columns(list(self.columns)).with_format("numpy")[:]
        return tuple(read_inputs(arrays[column], f"{where}: column '{column}'") for column in self.columns)


def _image(column: Any, row: int, name: str, shape: Shape, where: str) -> Array:
    try:
        image = column[row][name]
        if not hasattr(image, "convert"):
            raise DataError(f"no image but {type(image).__name__}")
        return pixels(image, shape)
    except Exception as error:  # the library passes on whatever Pillow's decoders raise for damaged images
        if out_of_memory(error):
            raise
        raise DataError(f"{where}: column '{name}', row {row} of those read cannot be used: {error}") from error


def _stacked(images: list[Array], shape: Shape, where: str) -> Array:
    sizes = sorted({image.shape[:2] for image in images})
    if len(sizes) > 1:
        raise DataError(f"{where}: images have different sizes (height, width): {sizes[0]}, {sizes[1]}; set size")
    batch = np.stack(images)
    return batch if shape.layout == "nhwc" else np.ascontiguousarray(batch.transpose(0, 3, 1, 2))


def _columns(tables: Mapping[str, Any], options: opt.HuggingFaceOptions) -> tuple[str, tuple[str, ...]]:
    """What the model gets, of ``COLUMNS``, and from which columns."""
    features = _features(tables)
    kinds = [kind for kind in COLUMNS if kind in options.model_fields_set]
    if len(kinds) > 1:
        raise DataError(f"{NAME}: {' and '.join(kinds)} are given; write one of them")
    images = [name for name, kind in features.items() if kind == "Image"]
    if kinds:
        value = getattr(options, kinds[0])
        names = value if isinstance(value, list | tuple) and kinds[0] == "inputs" else [value]
        return kinds[0], tuple(_require_column(name, features, kinds[0]) for name in names)
    if len(images) == 1:
        return "image", (images[0],)
    if "text" in features:
        return "text", ("text",)
    raise DataError(f"{NAME}: say what the model gets: text:, image: or inputs: of the columns {', '.join(features)}")


def _require_used(options: opt.HuggingFaceOptions, kind: str) -> None:
    """An option that belongs to another kind of column would be ignored without a word."""
    of_others = {key for keys in OF_COLUMN.values() for key in keys} - {*OF_COLUMN[kind]}
    strange = [key for key in opt.HuggingFaceOptions.model_fields if key in options.model_fields_set & of_others]
    if strange:
        raise DataError(f"{NAME}: {strange[0]} does not go with {kind}: its options are {', '.join(OF_COLUMN[kind])}")


def _features(tables: Mapping[str, Any]) -> dict[str, str]:
    """Column -> the library's type of it, for the columns that every split has."""
    first, *later = tables.values()
    return {
        name: type(first.features[name]).__name__
        for name in first.column_names
        if all(name in table.column_names for table in later)
    }


def _require_column(name: Any, features: Mapping[str, str], key: str) -> str:
    if not isinstance(name, str) or name not in features:
        raise DataError(f"{NAME}: {key}: no column {name!r} in every split; there are {', '.join(features)}")
    return name


def _label(tables: Mapping[str, Any], options: opt.HuggingFaceOptions) -> str | None:
    features = _features(tables)
    if options.label is not None:
        return _require_column(options.label, features, "label")
    return "label" if "label" in features and "label" not in options.model_fields_set else None


def _classes(tables: Mapping[str, Any], label: str | None, options: opt.HuggingFaceOptions) -> int | None:
    count = None if label is None else getattr(next(iter(tables.values())).features[label], "num_classes", None)
    return opt.read(opt.ClassOptions, {"classes": count} | options.list_given(opt.ClassOptions), NAME).classes


def _labels(rows: Any, label: str, where: str) -> Array | None:
    labels = read_labels(list(rows[label]), f"{where}: column '{label}'")
    # The hub's way to keep the labels of a split secret.
    return None if labels.dtype.kind == "i" and bool((labels == -1).all()) else labels


def _library() -> Any:
    try:
        import datasets  # type: ignore[import-not-found,unused-ignore]  # optional
    except ImportError as error:
        raise DataError(f"{NAME}: it needs the library datasets; pip install 'datasets>={OLDEST}'") from error
    version = importlib.metadata.version("datasets")
    if int(version.partition(".")[0]) < OLDEST:
        raise DataError(
            f"{NAME}: datasets {version} would run a script that comes with the data; pip install 'datasets>={OLDEST}'"
        )
    return datasets


def _open(value: str, options: opt.HuggingFaceOptions, base: Path) -> Mapping[str, Any]:
    """Split -> table, as the library has them."""
    library = _library()
    library.disable_progress_bars()
    folder = base / regular_file.expand_home(value)
    try:
        if any((folder / name).is_file() for name in SAVED):
            tables = library.load_from_disk(str(folder))
        else:
            target = str(folder) if folder.exists() else value
            downloads = store.open_cache() / DOWNLOADS / NAME
            more = {"revision": options.revision, "cache_dir": str(downloads)}
            tables = library.load_dataset(target, options.config, **more)
    except Exception as error:  # the library and its transports raise all kinds
        if out_of_memory(error):
            raise
        text = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{NAME}: {value} is no folder that the library datasets reads beside the suite, and no data set that it "
            f"can fetch from the hub: {text}"
        ) from error
    return tables if isinstance(tables, Mapping) else {"all": tables}


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The splits of a folder or of a data set on the hub; reads their columns, not the rows."""
    keys = opt.read(opt.HuggingFaceOptions, options)
    if not isinstance(value, str) or not value:
        raise DataError(f"{NAME}: expected a folder or a name on the hub, got {value!r}")
    return HuggingFace(_open(value, keys, base), f"{NAME}:{value}", keys, base)
