"""Files of records: one JSON object a line, the last one of a case wins."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from qbench.errors import UsageError
from qbench.files import atomic, regular_file, strict_json
from qbench.foreign_text import join_lines
from qbench.record.schema import SCHEMA, Record

RECORDS = "records.jsonl"
_ADAPTER: TypeAdapter[Record] = TypeAdapter(Record)


def to_line(record: Record) -> str:
    """The record as one line of strict JSON, without the newline; NaN and infinity are refused."""
    return json.dumps(asdict(record), ensure_ascii=False, allow_nan=False)


def from_line(line: str, *, file: str = "<text>", number: int = 1, advice: str | None = None) -> Record:
    """The record of one line; raises ``UsageError`` with file, line, field and ``advice`` when it is not one."""
    then = f"; {advice}" if advice else ""
    where = f"{file}:{number}"
    try:
        data = strict_json.parse(line)
    except strict_json.NotJson as error:
        place = f"{where}:{error.column}" if error.column else where
        then = then or "; remove the line, or its case is lost to every command"
        raise UsageError(f"{place}: not JSON: {error}{then}") from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(schema, int) or schema < 1:
        raise UsageError(f"{where}: not a qbench record: it has no schema number{then}")
    if schema > SCHEMA:
        raise UsageError(
            f"{where}: the record has schema {schema}, this qbench reads up to {SCHEMA}; install a newer qbench"
        )
    try:
        return _ADAPTER.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        place = join_lines(".".join(str(part) for part in first["loc"]))
        raise UsageError(f"{where}: {place}: {first['msg'].removeprefix('Value error, ')}{then}") from error


def read(path: Path) -> list[Record]:
    """All records of a ``.jsonl`` file (or of a run's directory), the last one winning for each case.

    A last line without a newline is what a killed run leaves: it is dropped. Any other bad line is an error.
    """
    file = path / RECORDS if path.is_dir() else path
    whole, _, _torn = _text(file).rpartition("\n")
    return list({record.case.id: record for _, record in _records(file, whole)}.values())


def read_whole(file: Path, advice: str) -> list[Record]:
    """The records of a file that was written at once and committed: each case once, and no line cut off. Raises
    ``UsageError`` with the line and ``advice`` for what a merge or an edit may have left there."""
    records: dict[str, Record] = {}
    lines: dict[str, int] = {}
    for number, record in _records(file, _text(file), advice):
        case = record.case.id
        if case in lines:
            raise UsageError(f"{file}:{number}: {case} stands in line {lines[case]}, too, as after a merge; {advice}")
        records[case], lines[case] = record, number
    return list(records.values())


def _text(file: Path) -> str:
    try:
        return regular_file.read_text(file)
    except OSError as error:
        raise UsageError(f"{file}: cannot read records: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not a records file: {error.reason} at byte {error.start}") from error


def _records(file: Path, text: str, advice: str | None = None) -> Iterator[tuple[int, Record]]:
    """Each record with the number of its line."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, from_line(line, file=str(file), number=number, advice=advice)


def append(path: Path, record: Record) -> None:
    """Adds one record to a file and forces it to disk, mending a torn last line first."""
    with path.open("ab+") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(to_line(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def write(path: Path, records: Iterable[Record]) -> None:
    """Writes a whole file of records atomically."""
    atomic.write_text(path, "".join(to_line(record) + "\n" for record in records))
