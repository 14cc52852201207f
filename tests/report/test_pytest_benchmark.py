"""Rules of qbench/report/pytest_benchmark.py: what a run writes is what pytest-benchmark itself would have written."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import CASE, FP32, failed, fp32, info, int8
from made_runs import HOSTILE, run_folder
from pytest_benchmark.stats import Stats

from qbench.record import jsonl
from qbench.record.schema import Record
from qbench.record.stored_run import read_run
from qbench.report import pytest_benchmark


def timed_run(folder: Path, calls_ns: dict[str, list[int]], records: list[Record], **described: object) -> Path:
    """A run with these timed calls, by case."""
    run_folder(folder, [], info(**described))
    (folder / "samples").mkdir()
    stored = []
    for number, record in enumerate(records):
        name = f"samples/{number}.npz"
        if record.case.id in calls_ns:
            np.savez(folder / name, calls_ns=np.array(calls_ns[record.case.id], dtype=np.int64))
            record = replace(record, samples=name)
        stored.append(record)
    jsonl.write(folder / "records.jsonl", stored)
    return folder


CALLS = {FP32: [2_000_000, 2_100_000, 2_050_000, 9_000_000], CASE: [1_000_000, 1_050_000, 1_010_000, 1_020_000]}


@given(st.lists(st.integers(min_value=1, max_value=10**10), min_size=1, max_size=60))
def test_the_statistics_are_those_of_pytest_benchmark(calls_ns: list[int]) -> None:
    """All sixteen, for any calls: min to total, both kinds of quartiles and outliers."""
    theirs = Stats()
    for call in calls_ns:
        theirs.update(call / 1e9)
    assert pytest_benchmark.statistics_of([call / 1e9 for call in calls_ns]) == pytest.approx(theirs.as_dict())


def test_only_timed_cases_are_benchmarks(tmp_path: Path) -> None:
    """A failed case, and one whose samples are gone, are left out: no time is made up for them."""
    other = int8("net/qat/x86/t1/b1")
    folder = timed_run(tmp_path / "run", CALLS, [fp32(), int8(), failed("net/dynamic/x86/t1/b1"), other])
    content = json.loads(pytest_benchmark.to_json(read_run(folder)))
    assert [benchmark["name"] for benchmark in content["benchmarks"]] == [FP32, CASE]
    int8_case = content["benchmarks"][1]
    assert int8_case["stats"]["data"] == [0.001, 0.00105, 0.00101, 0.00102]
    assert int8_case["fullname"] == f"suites/demo.yaml::{CASE}"
    assert int8_case["extra_info"]["speedup"] == 2.5
    assert content["machine_info"]["cpu"]["brand_raw"] == "CPU A"


def test_its_own_command_compares_two_runs(tmp_path: Path) -> None:
    """``pytest-benchmark compare`` shows both files, with its histogram's groups and the figures of each case."""
    slower = {case: [2 * call for call in calls] for case, calls in CALLS.items()}
    for name, calls in {"old": CALLS, "new": slower}.items():
        folder = timed_run(tmp_path / name, calls, [fp32(), int8()])
        (tmp_path / f"{name}.json").write_text(pytest_benchmark.to_json(read_run(folder)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", "old.json", "new.json", "--csv=out", "--time-unit=ms"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(CASE) == 2
    assert "benchmark 'net t1 b1': 4 tests" in done.stdout
    rows = (tmp_path / "out.csv").read_text(encoding="utf-8")
    assert rows.count(CASE) == 2


def test_hostile_names_stay_data(tmp_path: Path) -> None:
    """Names that try to break out are JSON strings, read back as they were."""
    case = f"{HOSTILE}/static/onednn/t1/b1"
    folder = timed_run(tmp_path / "run", {case: [1000]}, [int8(case)])
    content = json.loads(pytest_benchmark.to_json(read_run(folder)))
    assert content["benchmarks"][0]["name"] == case


def test_what_stands_beside_the_times_is_null_where_it_is_not_known() -> None:
    """Speed-up, size, share of int8, metric and score."""
    assert pytest_benchmark.extra_info(int8()) == {
        "mode": "static", "backend": "onednn", "speedup": 2.5, "size_bytes": 260_000, "macs_int8": 0.98,
        "metric": "top1", "accuracy": 0.97,
    }  # fmt: skip
    bare = replace(int8(), artifact=None, accuracy=None, speedup=None)
    assert set(pytest_benchmark.extra_info(bare).values()) == {"static", "onednn", None}
    assert pytest_benchmark.extra_info(fp32())["macs_int8"] is None


def test_a_benchmark_has_the_form_of_pytest_benchmarks(tmp_path: Path) -> None:
    """Rounds of one call after a warm-up without the collector, a key a line; a call of no time is none, and of a case
    that failed none are told."""
    records = [replace(fp32(), status="failed"), int8()]
    folder = timed_run(tmp_path / "run", CALLS | {CASE: [0, 1000, 3000]}, records)
    run = read_run(folder)
    text = pytest_benchmark.to_json(run)
    (benchmark,) = json.loads(text)["benchmarks"]
    assert benchmark["stats"]["data"] == [1e-6, 3e-6]
    assert (benchmark["stats"]["iterations"], benchmark["stats"]["rounds"]) == (1, 2)
    assert benchmark["options"] == {"timer": "qbench", "warmup": True, "disable_gc": True}
    assert text.startswith('{\n "machine_info": {\n  "machine": "x86_64",')
    assert text.endswith("}\n")
    assert json.loads(text)["datetime"] == run.info.finished
    unfinished = replace(run, info=replace(run.info, finished=None))
    assert json.loads(pytest_benchmark.to_json(unfinished))["datetime"] == run.info.started
