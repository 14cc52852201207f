"""``qbench export``: a run for other tools."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbench.cli.options import Run
from qbench.cli.output import find_folder
from qbench.errors import UsageError
from qbench.files import output_file

if TYPE_CHECKING:
    from qbench.record.stored_run import StoredRun


class Format(StrEnum):
    """What a run can be written as."""

    PYTEST_BENCHMARK = "pytest-benchmark"
    CSV = "csv"
    PARQUET = "parquet"


def export(
    run: Run,
    form: Annotated[Format, typer.Option("--format", help="What to write.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; default: standard output (parquet needs one)."),
    ] = None,
) -> None:
    """Write a run for other tools: pytest-benchmark's JSON with every timed call, or one row per case."""
    from qbench.record.stored_run import read_run

    if form is Format.PARQUET and output is None:
        raise UsageError("--format parquet is binary: name a file with --output FILE")
    stored = read_run(find_folder(run))
    if form is Format.PARQUET:
        assert output is not None
        _write(output, _to_parquet(stored))
    elif output is None:
        print(_to_text(stored, form), end="")
    else:
        _write(output, _to_text(stored, form).encode())


def _to_text(run: StoredRun, form: Format) -> str:
    if form is Format.CSV:
        from qbench.report import build

        return build.csv_text(build.read_cases(run))
    from qbench.report import pytest_benchmark

    return pytest_benchmark.to_json(run)


def _to_parquet(run: StoredRun) -> bytes:
    """The rows of the csv with their types; raises ``UsageError`` where pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise UsageError("--format parquet needs pyarrow: `pip install pyarrow`, or take --format csv") from error
    from qbench.report import build

    return build.parquet_bytes(build.read_cases(run))


def _write(file: Path, content: bytes) -> None:
    with output_file.place_for(file):
        file.write_bytes(content)
