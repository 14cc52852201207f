"""Files of records: one JSON object a line, the last one of a case wins."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from qbench.errors import UsageError
from qbench.files import atomic, strict_json
from qbench.record.schema import SCHEMA, Record

RECORDS = "records.jsonl"
_ADAPTER: TypeAdapter[Record] = TypeAdapter(Record)


def to_line(record: Record) -> str:
    """The record as one line of strict JSON, without the newline; NaN and infinity are refused."""
    return json.dumps(asdict(record), ensure_ascii=False, allow_nan=False)


def from_line(line: str, *, file: str = "<text>", number: int = 1) -> Record:
    """The record of one line; raises ``UsageError`` with file, line and field when it is not one."""
    where = f"{file}:{number}"
    try:
        data = strict_json.parse(line)
    except strict_json.NotJson as error:
        place = f"{where}:{error.column}" if error.column else where
        raise UsageError(
            f"{place}: not JSON: {error}; remove the line, or its case is lost to every command"
        ) from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(schema, int) or schema < 1:
        raise UsageError(f"{where}: not a qbench record: it has no schema number")
    if schema > SCHEMA:
        raise UsageError(
            f"{where}: the record has schema {schema}, this qbench reads up to {SCHEMA}; install a newer qbench"
        )
    try:
        return _ADAPTER.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{where}: {place}: {first['msg']}") from error


def read(path: Path) -> list[Record]:
    """All records of a ``.jsonl`` file (or of a run's directory), the last one winning for each case.

    A last line without a newline is what a killed run leaves: it is dropped. Any other bad line is an error.
    """
    file = path / RECORDS if path.is_dir() else path
    whole, _, _torn = _text(file).rpartition("\n")
    return list({record.case.id: record for record in _records(file, whole)}.values())


def read_whole(file: Path) -> list[Record]:
    """The records of a file that was written at once and committed: each case once, and no line cut off. Raises
    ``UsageError`` for what a merge or an edit may have left there."""
    lines: dict[str, Record] = {}
    for record in _records(file, _text(file)):
        if record.case.id in lines:
            raise UsageError(
                f"{file}: {record.case.id} stands there twice, as after a merge; remove one of the lines, or write the "
                "baseline again with `qbench baseline RUN`"
            )
        lines[record.case.id] = record
    return list(lines.values())


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot read records: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: not a records file: {error.reason} at byte {error.start}") from error


def _records(file: Path, text: str) -> Iterator[Record]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield from_line(line, file=str(file), number=number)


def append(path: Path, record: Record) -> None:
    """Adds one record to a file and forces it to disk, mending a torn last line first."""
    with path.open("ab+") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(0)
            whole = file.read()
            file.truncate(whole.rfind(b"\n") + 1)
        file.write(to_line(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def write(path: Path, records: Iterable[Record]) -> None:
    """Writes a whole file of records atomically."""
    atomic.write_text(path, "".join(to_line(record) + "\n" for record in records))
