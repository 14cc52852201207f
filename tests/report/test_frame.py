"""Rules of qbench/report/frame.py: a run as tidy frames."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_records import CASE, FP32, failed, fp32, info, int8, latency, speedup
from made_runs import run_folder

from qbench.record.schema import Fastest, Record
from qbench.record.stored_run import read_run
from qbench.report import build
from qbench.report.columns import OPEN, STORED
from qbench.report.frame import calls_frame, layers_frame, process_of_calls

SUITE = replace(
    info().suite, text="suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {modes: [fp32]}\n"
)


def frame_of(folder: Path, records: list[Record]) -> pd.DataFrame:
    """The cases of a run on disk."""
    return build.read_cases(read_run(run_folder(folder, records, info(suite=SUITE))))


def test_every_column_is_there_whatever_was_measured(tmp_path: Path) -> None:
    """A failed case alone, and a run without records, have the columns of a measured one, in order and with types."""
    full = frame_of(tmp_path / "full", [fp32(), int8(recipe={"flow": "fx"}, observed={"threads": 1})])
    bare, none = frame_of(tmp_path / "bare", [failed()]), frame_of(tmp_path / "none", [])
    assert list(full.columns) == [*STORED, "observed.threads", "recipe.flow"]
    assert list(bare.columns) == list(STORED) == list(none.columns)
    assert full.dtypes[list(STORED)].equals(bare.dtypes)
    assert full.dtypes[list(STORED)].equals(none.dtypes)
    assert bare["latency.p50_seconds"].isna().all()


def test_values_are_raw_and_what_is_missing_is_missing(tmp_path: Path) -> None:
    """Seconds, bytes and shares; never 0 for what was not measured."""
    frame = frame_of(tmp_path / "run", [fp32(), int8()])
    assert frame["latency.p50_seconds"].tolist() == [0.0025, 0.001]
    assert frame["artifact.coverage.float_layers"].tolist() == [None, "fc"]
    assert frame["size_over_fp32"].tolist() == [1.0, 0.26]
    assert frame["artifact.coverage.layers_int8"].isna().tolist() == [True, False]
    assert frame["accuracy.verdict"].tolist() == [None, "PASS"]
    assert frame["run"].tolist() == ["run", "run"]


def test_the_decision_stands_in_its_columns(tmp_path: Path) -> None:
    """What is shipped, what it was held against, and each case's time over the fastest fp32."""
    fast = int8(speedup_fastest=Fastest(baseline=FP32, value=2.5, low=2.4, high=2.6))
    slow = int8("net/qat/onednn/t1/b1", latency=latency(0.002), speedup=speedup(1.25))
    frame = frame_of(tmp_path / "run", [fp32(), fast, slow]).set_index("case.id")
    assert frame["decision.role"].to_dict() == {FP32: None, CASE: "ship", "net/qat/onednn/t1/b1": None}
    assert frame["decision.is_best_fp32"].tolist() == [True, False, False]
    assert frame["over_best_fp32.value"].tolist() == [1.0, 0.4, 0.8]
    assert frame.loc[CASE, "over_best_fp32.low"] == pytest.approx(1 / 2.6)
    assert frame.loc[FP32, "over_best_fp32.low"] != frame.loc[FP32, "over_best_fp32.low"]


def test_a_mapping_of_names_is_one_cell(tmp_path: Path) -> None:
    """Names of layers and files become no columns."""
    record = int8(observed={"threads": 1, "thread_pools": {"openmp:a.so": 1, "openblas:b.so": 2}})
    frame = frame_of(tmp_path / "run", [record])
    assert json.loads(frame.loc[0, "observed.thread_pools"]) == {"openmp:a.so": 1, "openblas:b.so": 2}
    assert [name for name in frame.columns if name not in STORED] == ["observed.thread_pools", "observed.threads"]
    assert all(name.startswith(tuple(OPEN)) for name in frame.columns if name not in STORED)


def test_each_call_has_its_process(tmp_path: Path) -> None:
    """From the block that it belongs to; a file that tells no processes has one."""
    arrays = {
        "calls_ns": np.array([10, 20, 30, 40, 50]),
        "block": np.array([0, 0, 1, 2, 2]),
        "process": np.array([0, 0, 1]),
    }
    folder = run_folder(tmp_path / "run", [int8(samples="samples/a.npz"), fp32()])
    (folder / "samples").mkdir()
    np.savez(folder / "samples/a.npz", **arrays)
    run = read_run(folder)
    calls = calls_frame(run, run.records)
    assert calls["process"].tolist() == [0, 0, 0, 1, 1]
    assert calls["seconds"].tolist() == pytest.approx([1e-8, 2e-8, 3e-8, 4e-8, 5e-8])
    assert set(calls["case.id"]) == {CASE}
    del arrays["process"]
    assert process_of_calls(arrays).tolist() == [0] * 5


def test_layers_name_what_stayed_in_float(tmp_path: Path) -> None:
    """Once for each variant; a float layer without numbers has its row."""
    numbers = [{"name": "conv", "sqnr_db": 31.5, "cosine": 0.999, "n": 100, "clipped": 0.01}]
    records = [int8(layers="layers/a.json"), int8("net/static/onednn/t2/b1", layers="layers/a.json")]
    folder = run_folder(tmp_path / "run", records)
    (folder / "layers").mkdir()
    (folder / "layers/a.json").write_text(json.dumps(numbers), encoding="utf-8")
    layers = layers_frame(read_run(folder))
    assert layers[["layer", "is_float"]].values.tolist() == [["conv", False], ["fc", True]]
    assert layers["sqnr_db"].isna().tolist() == [False, True]
    assert layers_frame(read_run(run_folder(tmp_path / "none", []))).empty


@pytest.mark.parametrize(
    ("arrays", "processes"),
    [
        ({"block": [3, 3, 7], "process": [4, 9]}, [4, 4, 9]),
        ({"block": [0, 1, 2], "process": [0, 1]}, [0, 0, 0]),
        ({"block": [0, 0], "process": [1]}, [0, 0, 0]),
        ({"block": [0, 0, 0], "process": []}, [0, 0, 0]),
        ({"process": [1, 1, 1]}, [0, 0, 0]),
        ({"block": [0, 0, 0]}, [0, 0, 0]),
    ],
)
def test_processes_that_do_not_fit_the_calls_are_not_told(arrays: dict[str, list[int]], processes: list[int]) -> None:
    """All calls are then of one; blocks have any numbers, in the order of their processes."""
    stored = {name: np.array(values, dtype=np.int64) for name, values in arrays.items()}
    assert process_of_calls({"calls_ns": np.array([10, 20, 30]), **stored}).tolist() == processes
    nothing = {"calls_ns": np.zeros(0), "block": np.zeros(0, dtype=int), "process": np.array([1])}
    assert process_of_calls(nothing).size == 0


def test_calls_of_several_cases_stand_in_the_order_of_their_records(tmp_path: Path) -> None:
    """One without calls has none; without any the columns are there all the same."""
    records = [int8(samples="a.npz"), int8("net/qat/x86/t1/b1", samples="none.npz"), replace(fp32(), samples="b.npz")]
    folder = run_folder(tmp_path / "run", records)
    for name, calls in (("a", [10]), ("none", []), ("b", [20, 30])):
        np.savez(folder / f"{name}.npz", calls_ns=np.array(calls, dtype=np.int64))
    run = read_run(folder)
    calls = calls_frame(run, run.records)
    assert calls["case.id"].tolist() == [CASE, FP32, FP32]
    assert calls.index.tolist() == [0, 1, 2]
    empty = calls_frame(run, run.records[1:2])
    assert (list(empty.columns), len(empty)) == (["case.id", "process", "seconds"], 0)


def test_reasons_of_layers_are_the_artifacts_or_those_of_the_comparison(tmp_path: Path) -> None:
    """Of a layer in float why it stayed there; a record without an artifact has no such layers."""
    numbers = [{"name": "fc", "reason": "not compared"}, {"name": "conv", "reason": "runs in int8 only"}]
    own = int8(layers="a.json")
    assert own.artifact is not None
    assert own.artifact.coverage is not None
    told = replace(own.artifact.coverage, float_layers=("fc", "stem"), float_reasons={"fc": "asked", "stem": "first"})
    coverage = replace(own, artifact=replace(own.artifact, coverage=told))
    bare = replace(int8("net/qat/x86/t1/b1", layers="b.json"), artifact=None)
    folder = run_folder(tmp_path / "run", [coverage, bare, replace(fp32(), layers=None)])
    for name in ("a", "b"):
        (folder / f"{name}.json").write_text(json.dumps(numbers), encoding="utf-8")
    layers = layers_frame(read_run(folder))
    assert layers[["case.id", "layer", "n", "is_float", "reason"]].values.tolist() == [
        [CASE, "fc", 0, True, "asked"],
        [CASE, "conv", 0, False, "runs in int8 only"],
        [CASE, "stem", 0, True, "first"],
        ["net/qat/x86/t1/b1", "fc", 0, False, "not compared"],
        ["net/qat/x86/t1/b1", "conv", 0, False, "runs in int8 only"],
    ]
