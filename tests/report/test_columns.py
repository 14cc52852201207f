"""Rules of qbench/report/columns.py: each column is explained, in one place."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbench.record.schema import Record
from qbench.report.columns import COLUMNS, OPEN, write_guide
from qbench.report.measurement_table import ORDER

GUIDE = Path(__file__).parents[2] / "qbench/guide/python.md"


def fields_of(kind: type, prefix: str = "") -> Iterator[str]:
    """The dotted names of all that a record can hold."""
    hints = typing.get_type_hints(kind)
    for part in dataclasses.fields(kind):
        hint = hints[part.name]
        options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
        nested = next((option for option in options if dataclasses.is_dataclass(option)), None)
        if nested is None:
            yield f"{prefix}{part.name}"
        else:
            yield from fields_of(nested, f"{prefix}{part.name}.")


def test_every_field_of_a_record_has_its_column() -> None:
    """A new field of the record is explained here, or is a mapping whose keys are columns."""
    mappings = {start.rstrip(".") for start in OPEN}
    assert set(fields_of(Record)) - mappings <= set(COLUMNS)


def test_every_column_says_what_it_holds() -> None:
    """Short enough for a table's cell, without a bar that would end it."""
    assert [name for name, column in COLUMNS.items() if not 3 <= len(column.meaning) <= 100] == []
    assert "|" not in "".join(column.meaning + column.unit for column in COLUMNS.values())


def test_the_guide_holds_the_same_table() -> None:
    """``python -c 'from qbench.report.columns import write_guide; print(write_guide())'`` makes it."""
    assert write_guide() in GUIDE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("latency.n", 1234, "1,234"),
        ("cold_start.load_seconds", 0.02, "20.0 ms"),
        ("memory.loaded_rss_bytes", 100_000_000, "100 MB"),
        ("interference.shared", 0.6, "60 %"),
        ("sequential.speedup", 1.5, "1.50"),
        ("speedup.steady", False, "no"),
        ("latency.p50_from", "all", "all"),
        ("memory.peak_rss_bytes", None, None),
    ],
)
def test_a_value_is_written_as_its_kind_and_unit_have_it(name: str, value: object, written: str | None) -> None:
    """One rule for all columns: what was not measured is nothing, never 0."""
    assert COLUMNS[name].write(value) == written


def test_what_the_table_of_measurements_shows_has_a_title() -> None:
    """And what has a title is shown there."""
    assert {name for name, column in COLUMNS.items() if column.title} == set(ORDER)
