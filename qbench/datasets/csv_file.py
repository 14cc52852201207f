"""Rows of a CSV file with texts and labels, each with the line on which it begins."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench import registry
from qbench.datasets.options import CsvFormat
from qbench.errors import DataError
from qbench.files import regular_file

LONGEST = 1 << 27  # characters of one field; the library's own limit of 131,072 is below some texts


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns are read. ``label`` None: the file has none. ``others`` are read, too. ``options``: what names them
    in a suite."""

    text: str
    label: str | None
    others: tuple[str, ...] = ()
    options: tuple[str, ...] = ("text", "label", "split")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A text, its label and the other columns as they are written; ``line`` counts from 1, as editors do."""

    line: int
    text: str
    label: str | None
    others: tuple[str, ...] = ()


def choose_delimiter(file: Path, options: CsvFormat) -> str:
    """What parts the columns: a tab in ``.tsv`` where the suite says nothing else."""
    is_tsv = file.suffix.lower() == ".tsv" and "delimiter" not in options.model_fields_set
    return "\t" if is_tsv else options.delimiter


def read_header(file: Path, *, delimiter: str = ",", encoding: str = "utf-8") -> list[str]:
    """The names of the columns; raises ``DataError`` where there are none."""
    with _rows(file, delimiter, encoding) as rows:
        for _, names in rows:
            return names
    raise DataError(f"{file}: it is empty; the first line names the columns, such as text,label")


def read_csv(file: Path, columns: Columns, *, delimiter: str = ",", encoding: str = "utf-8") -> list[Row]:
    """All rows, empty lines left out.

    Raises ``DataError`` with the line for a column that is not there, a row of another length, a text without a letter,
    a quote that is not closed, and bytes that are no text in this encoding.
    """
    names = read_header(file, delimiter=delimiter, encoding=encoding)
    required = (columns.text, *([] if columns.label is None else [columns.label]), *columns.others)
    columns_read = [_place(file, names, name, columns.options) for name in required]
    records = []
    with _rows(file, delimiter, encoding) as rows:
        next(rows)
        for line, row in rows:
            if len(row) != len(names):
                raise DataError(
                    f"{file}:{line}: {len(row)} fields, but the first line names {len(names)} columns; put a text that "
                    f"holds {delimiter!r} or a line break between double quotes"
                )
            text, *rest = (row[column] for column in columns_read)
            if not text.strip():
                raise DataError(f"{file}:{line}: there is no text in column '{columns.text}'; remove the line")
            label = None if columns.label is None else rest.pop(0).strip()
            records.append(Row(line=line, text=text, label=label, others=tuple(rest)))
    if not records:
        raise DataError(f"{file}: it has a first line with names, but no rows")
    return records


def _place(file: Path, names: list[str], name: str, options: tuple[str, ...]) -> int:
    if names.count(name) == 1:
        return names.index(name)
    if name in names:
        raise DataError(f"{file}: {names.count(name)} columns are called '{name}'; rename all but one")
    hint = registry.suggest(name, names) or ";"
    raise DataError(
        f"{file}: no column '{name}'{hint} the first line names {', '.join(names)}; write "
        f"{', '.join(f'{key}:' for key in options[:-1])} or {options[-1]}: with the name that it has"
    )


@contextmanager
def _rows(file: Path, delimiter: str, encoding: str) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """Pairs of the line on which a row begins and its fields; a byte order mark is no part of the first name."""
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise DataError(f"{file}: encoding: there is none called {encoding!r}; write utf-8 or latin-1") from error
    before = csv.field_size_limit(LONGEST)
    try:
        form = "utf-8-sig" if encoding == "utf-8" else encoding
        with io.TextIOWrapper(regular_file.open_file(file), encoding=form, newline="") as stream:
            yield _numbered(file, csv.reader(stream, delimiter=delimiter, strict=True), encoding)
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
    finally:
        csv.field_size_limit(before)


def _numbered(file: Path, reader: Any, encoding: str) -> Iterator[tuple[int, list[str]]]:
    before = 0
    try:
        for row in reader:
            if row:
                yield before + 1, row
            before = reader.line_num
    except csv.Error as error:
        raise DataError(f"{file}:{before + 1}: no CSV from here on: {error}; is a double quote not closed?") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file}: not {encoding} from line {before + 1} on ({error.reason}); write encoding: with the one it was "
            "saved in, for example latin-1"
        ) from error
