"""CSV files as a data set gives them: one of all examples, with a column of splits or without, or a folder with one a
split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qbench.datasets import options as opt
from qbench.datasets.base import Array
from qbench.datasets.csv_file import Columns, Row, choose_delimiter, read_csv, read_header
from qbench.errors import DataError

ENDINGS = (".csv", ".tsv")
Keys = tuple[str, str, str]  # the options that name the columns: of what a network is given, of labels, of splits


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file and what is read of it; ``split`` is the column of splits, None where there is none."""

    file: Path
    columns: Columns
    split: str | None
    delimiter: str
    encoding: str

    def rows(self) -> list[Row]:
        """All rows of the file."""
        return read_csv(self.file, self.columns, delimiter=self.delimiter, encoding=self.encoding)

    def index_splits(self, rows: Sequence[Row]) -> dict[str, Array]:
        """The places of the rows of each split, as its column names them."""
        of_row = np.array([row.others[0].strip() for row in rows])
        if "" in of_row:
            line = rows[int(np.flatnonzero(of_row == "")[0])].line
            raise DataError(f"{self.file}:{line}: column '{self.split}' is empty; name the split")
        return {str(split): np.flatnonzero(of_row == split) for split in np.unique(of_row)}


def open_source(file: Path, options: opt.CsvFileOptions, keys: Keys, *, label_needed: bool = False) -> Source:
    """The file with the columns that the options ``keys`` name; reads its first line. The column of splits may be
    missing where the suite does not name it, and, unless it is needed, that of labels."""
    delimiter = choose_delimiter(file, options)
    names = read_header(file, delimiter=delimiter, encoding=options.encoding)
    content, label, split = (str(getattr(options, key)) for key in keys)
    has_label = label_needed or label in names or keys[1] in options.model_fields_set
    has_split = split in names or keys[2] in options.model_fields_set
    columns = Columns(
        text=content, label=label if has_label else None, others=(split,) if has_split else (), options=keys
    )
    source_split = split if has_split else None
    return Source(file=file, columns=columns, split=source_split, delimiter=delimiter, encoding=options.encoding)


def list_files(loader: str, source: Path) -> dict[str, Path]:
    """Files by split; the split is ``""`` for a file of all."""
    if not source.is_dir():
        return {"": source}
    files = sorted(file for file in source.iterdir() if file.suffix.lower() in ENDINGS and file.is_file())
    if not files:
        raise DataError(
            f"{loader}: {source}: no {' or '.join(ENDINGS)} in this folder; one file a split, such as train.csv"
        )
    twice = sorted({file.stem for file in files if sum(sibling.stem == file.stem for sibling in files) > 1})
    if twice:
        raise DataError(f"{loader}: {source}: two files are called {twice[0]}; keep one a split")
    return {file.stem: file for file in files}
