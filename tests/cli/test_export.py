"""Rules of qbench/cli/export.py: what it writes, where to, and what it says where it cannot."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from made_records import CASE, FP32, RUN_V1, fp32, int8
from made_runs import run_folder

import qbench
from qbench.cli import main

Export = Callable[..., tuple[int, str, str]]


@pytest.fixture
def export(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Export:
    """``qbench export`` in this process: its exit code and both streams."""

    def command(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["qbench", "export", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main.main()
        captured = capsys.readouterr()
        return int(str(ended.value.code)), captured.out, captured.err

    return command


def test_a_real_run_as_pytest_benchmark(export: Export, tmp_path: Path) -> None:
    """A stored run's calls land in the file that is named; nothing is printed."""
    file = tmp_path / "new" / "deep" / "times.json"
    assert export(RUN_V1, "--format", "pytest-benchmark", "-o", file) == (0, "", "")
    benchmarks = json.loads(file.read_text(encoding="utf-8"))["benchmarks"]
    assert benchmarks
    assert all(benchmark["stats"]["rounds"] == len(benchmark["stats"]["data"]) for benchmark in benchmarks)


def test_csv_goes_to_standard_output(export: Export, tmp_path: Path) -> None:
    """One row per case, as in results.csv."""
    code, out, _ = export(run_folder(tmp_path / "run", [fp32(), int8()]), "--format", "csv")
    assert code == 0
    assert list(pd.read_csv(io.StringIO(out))["case.id"]) == [FP32, CASE]


def test_a_file_takes_the_place_of_an_earlier_one(export: Export, tmp_path: Path) -> None:
    """In a folder that is there, with the rows that would be printed."""
    run, file = run_folder(tmp_path / "run", [fp32(), int8()]), tmp_path / "rows.csv"
    file.write_text("earlier")
    assert export(run, "--format", "csv", "--output", file) == (0, "", "")
    assert file.read_text(encoding="utf-8") == export(run, "--format", "csv")[1]


def test_parquet_keeps_values_and_types(export: Export, tmp_path: Path) -> None:
    """Numbers are numbers, what was not measured is null, and the rows are those of the csv."""
    pytest.importorskip("pyarrow")
    records = [fp32(), int8()]
    file = tmp_path / "rows.parquet"
    assert export(run_folder(tmp_path / "run", records), "--format", "parquet", "-o", file)[0] == 0
    read = pd.read_parquet(file)
    assert list(read.columns) == list(qbench.load(tmp_path / "run").columns)
    assert read["speedup.value"].isna().tolist() == [True, False]
    assert read["latency.p50_seconds"].tolist() == [0.0025, 0.001]
    assert read["artifact.size_bytes"].tolist() == [1_000_000, 260_000]


def test_parquet_needs_a_file(export: Export, tmp_path: Path) -> None:
    """Binary is not written to a terminal."""
    code, out, err = export(run_folder(tmp_path / "run", [fp32()]), "--format", "parquet")
    assert (code, out) == (2, "")
    assert "--output" in err


def test_parquet_without_pyarrow_says_what_to_install(
    export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message with the way out, no traceback."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    folder = run_folder(tmp_path / "run", [fp32()])
    code, _, err = export(folder, "--format", "parquet", "-o", tmp_path / "x.parquet")
    assert code == 2
    assert "pip install pyarrow" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("form", ["pytest-benchmark", "csv"])
def test_a_file_that_cannot_be_written(export: Export, tmp_path: Path, form: str) -> None:
    """The message names the file."""
    (tmp_path / "taken").write_text("")
    code, _, err = export(run_folder(tmp_path / "run", [fp32()]), "--format", form, "-o", tmp_path / "taken" / "x")
    assert code == 2
    assert "taken" in err


def test_an_unknown_format_lists_those_there_are(export: Export) -> None:
    """The option's own message."""
    code, _, err = export("x", "--format", "xml")
    assert code == 2
    assert "pytest-benchmark" in err
