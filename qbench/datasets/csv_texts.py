"""Texts in CSV files: ``{csv: reviews.csv, tokenizer: tokenizer.json, classes: [bad, good]}``.

A file has a first line with names, a column with texts and perhaps one with labels; a column ``split`` says which split
a row belongs to, else the rows are split into train and test by ``seed`` and ``test_share``. A folder has one file a
split, ``train.csv``, ``test.csv``. Labels are whole numbers (classes), numbers with a point (regression) or, with
``classes``, the list of their names in the order of the model's outputs, those names.

Options: ``text``, ``label``, ``split`` (the names of these columns), ``classes`` (their names, or how many there are),
``delimiter`` (default a comma, a tab in ``.tsv``), ``encoding`` (default utf-8) and those of ``tokens``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets import tokens
from qbench.datasets.base import Array, Dataset, Examples
from qbench.datasets.csv_file import Row
from qbench.datasets.csv_source import Source, list_files, open_source
from qbench.datasets.preprocessing import Preprocessing
from qbench.datasets.splits import SPLITS, split_without_twins
from qbench.datasets.validation import check_dataset, require_split
from qbench.errors import DataError, first_names

NAME = "csv"
KEYS = ("text", "label", "split")


class CsvTexts(Dataset):
    """Raw inputs are int64 of shape (n, length), one array for each of ``tokens``."""

    preprocessing = Preprocessing(to_float=False)

    def __init__(self, files: Mapping[str, Path], name: str, options: opt.CsvOptions, base: Path) -> None:
        self.name = name
        self.options = options
        self.tokens = tokens.read_tokens(options, base)
        self.names = options.classes if isinstance(options.classes, tuple) else None
        self.classes = len(options.classes) if isinstance(options.classes, tuple) else options.classes
        self.sources = {split: open_source(file, options, KEYS) for split, file in files.items()}
        self._known: dict[str, Examples] | None = None
        lone = self.sources.get("")
        if lone is None:
            self.splits = tuple(self.sources)
        elif lone.split is None:
            self.splits = SPLITS
        else:
            self.splits = tuple(self._examples())

    def load(self, split: str) -> Examples:
        """All examples of one split; ids are ``<file>:<line>``."""
        require_split(self, split)
        examples = self._examples()[split]
        check_dataset(self, split, examples)
        return examples

    def _examples(self) -> dict[str, Examples]:
        """Every split, read and tokenized once."""
        if self._known is None:
            lone = self.sources.get("")
            if lone is None:
                self._known = {split: self._of(source, source.rows()) for split, source in self.sources.items()}
            else:
                self._known = self._parted(lone)
        return self._known

    def _parted(self, source: Source) -> dict[str, Examples]:
        rows = source.rows()
        everything = self._of(source, rows)
        by_column = source.split is not None
        index = source.index_splits(rows) if by_column else split_without_twins(self.options, everything)
        return {split: everything.take(positions) for split, positions in index.items()}

    def _of(self, source: Source, rows: Sequence[Row]) -> Examples:
        return Examples(
            inputs=self.tokens.encode([row.text for row in rows]),
            labels=_labels(rows, self.names, source),
            ids=tuple(f"{source.file.name}:{row.line}" for row in rows),
        )


def _labels(rows: Sequence[Row], names: tuple[str, ...] | None, source: Source) -> Array | None:
    if source.columns.label is None:
        return None
    missing = next((row for row in rows if not row.label), None)
    if missing is not None:
        raise DataError(f"{source.file}:{missing.line}: no label in column '{source.columns.label}'")
    if names is not None:
        return np.array([_position(row, names, source) for row in rows], dtype=np.int64)
    numbers = [_number(str(row.label)) for row in rows]
    strange = next((row for row, number in zip(rows, numbers, strict=True) if number is None), None)
    if strange is not None:
        labels = sorted({str(row.label) for row in rows})
        raise DataError(
            f"{source.file}:{strange.line}: the label {strange.label!r} is no number (there are "
            f"{first_names(labels)}); write classes: the list of their names in the order of the model's outputs"
        )
    whole = all(isinstance(number, int) for number in numbers)
    return np.array(numbers, dtype=np.int64 if whole else np.float64)


def _position(row: Row, names: tuple[str, ...], source: Source) -> int:
    if row.label not in names:
        raise DataError(
            f"{source.file}:{row.line}: the label {row.label!r} is none of the classes "
            f"{first_names(names)}; correct it, or add it to classes"
        )
    return names.index(row.label)


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            number: int | float = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else None
    return None


def open_dataset(value: Any, *, base: Path, options: Mapping[str, Any]) -> Dataset:
    """The file's or folder's splits; reads the first lines, and the texts only where a column names the splits."""
    keys = opt.read(opt.CsvOptions, options)
    source = opt.read_path(NAME, value, base)
    return CsvTexts(list_files(NAME, source), f"{NAME}:{value}", keys, base)
