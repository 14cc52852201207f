"""Rules of qbench/report/build.py: a report from what lies on disk, whatever is left of it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_records import CASE, FP32, RUN_V1, failed, info, int8, skipped
from made_runs import run_folder

from qbench.record import jsonl
from qbench.record.schema import Fastest
from qbench.record.stored_run import read_run
from qbench.report.build import build_report

ONNX = "digits-cnn__static__onnxruntime__t1__b1.npz"
ONNX_CASE = "digits-cnn/static/onnxruntime/t1/b1"
SHOWN = {
    "report.html": ("static · x86", "qat · onednn", "static · qnnpack", "static · onnxruntime"),
    "summary.md": ("static int8 on x86", "QAT int8 on oneDNN", "static int8 on QNNPACK", "static int8 on ONNX Runtime"),
}
SURE = ["decision.probability"]
DAMAGE = {
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "garbage": lambda file: file.write_bytes(b"\x00garbage" * 100),
    "other": lambda file: np.savez(
        file, calls_ns=np.array(["a"]), log_ratios=np.array([["a"]]), outputs=np.array(["a"])
    ),
    "folder": lambda file: (file.unlink(), file.mkdir()),
    "gone": lambda file: file.unlink(),
}


def build(folder: Path) -> dict[str, str]:
    """All files that a report is, by name."""
    build_report(folder)
    names = ("report.html", "summary.md", "results.csv", "flips.csv", "classes.csv")
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The report of a run without damage."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    shutil.copytree(RUN_V1, folder)
    return build(folder)


@pytest.mark.parametrize("kind", ["samples", "predictions"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_one_damaged_file_costs_no_more_than_itself(
    tmp_path: Path, whole: dict[str, str], damage: str, kind: str
) -> None:
    """That case is named on top of the page and of the summary; every other case is shown as before."""
    folder = tmp_path / "run"
    shutil.copytree(RUN_V1, folder)
    DAMAGE[damage](folder / kind / ONNX)
    files = build(folder)
    for name in ("report.html", "summary.md"):
        place = files[name].index(ONNX_CASE)
        assert "shown is what " in files[name][place : place + 600]
        for case in SHOWN[name]:
            assert case in files[name]
    before, after = (pd.read_csv(io.StringIO(csv)) for csv in (whole["results.csv"], files["results.csv"]))
    # How sure the pick is comes from its processes, or its examples, which are gone.
    pd.testing.assert_frame_equal(before.drop(columns=SURE), after.drop(columns=SURE))


def test_arrays_that_do_not_fit_together_are_no_crash(tmp_path: Path) -> None:
    """Samples of another length than their processes say, and predictions of fewer examples than their labels."""
    folder = tmp_path / "run"
    shutil.copytree(RUN_V1, folder)
    for kind in ("samples", "predictions"):
        file = folder / kind / ONNX
        with np.load(file) as stored:
            arrays = {key: stored[key] for key in stored.files}
        arrays = {key: array[: 1 + place] if array.ndim else array for place, (key, array) in enumerate(arrays.items())}
        np.savez(file, **arrays)
    assert "static int8 on ONNX Runtime" in build(folder)["summary.md"]


def test_many_absent_files_are_one_line(tmp_path: Path) -> None:
    """A run whose samples were pruned says so once."""
    folder = tmp_path / "run"
    shutil.copytree(RUN_V1, folder)
    shutil.rmtree(folder / "samples")
    summary = build(folder)["summary.md"]
    assert summary.count("are not there") == 1
    assert "more; shown is what their records say, limits included" in summary


@pytest.mark.parametrize(
    ("records", "described"),
    [
        ([], info()),
        ([], info((FP32, CASE), finished=None)),
        ([failed(), failed(FP32), skipped("net/qat/x86/t1/b1")], info()),
        ([int8()], info((FP32, CASE), finished=None, metric=None, environment={}, versions={})),
    ],
)
def test_a_run_that_got_nowhere_has_a_report(tmp_path: Path, records: list, described: object) -> None:
    """Nothing recorded, half done, all failed, no fp32: all five files are there, and the reasons in them."""
    files = build(run_folder(tmp_path / "run", records, described))
    for record in records:
        if record.reason is not None:
            assert record.reason in files["summary.md"]
            assert record.reason in files["report.html"]


def test_a_report_is_the_same_in_every_process(tmp_path: Path) -> None:
    """No clock, no order of a set, no chance in a drawing: another process with another hash writes the same bytes."""
    folder = tmp_path / "run"
    shutil.copytree(RUN_V1, folder)
    files = build(folder)
    program = "import sys, pathlib; from qbench.report.build import build_report as b; b(pathlib.Path(sys.argv[1]))"
    environment = os.environ | {"PYTHONHASHSEED": "77", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, env=environment, timeout=300)
    for name, text in files.items():
        assert (folder / name).read_text(encoding="utf-8") == text, name


def test_a_ratio_over_an_fp32_that_has_no_record_is_left_out(tmp_path: Path) -> None:
    """Where the line of the fastest fp32 is lost, every part of a report compares with the one that is left."""
    folder = tmp_path / "run"
    shutil.copytree(RUN_V1, folder)
    records = list(jsonl.read(folder))
    lost = "digits-cnn/fp32/onnxruntime/t1/b1"
    fastest = Fastest(baseline=lost, value=2.0, low=1.9, high=2.1)
    jsonl.write(
        folder / "records.jsonl",
        [replace(r, speedup_fastest=fastest) for r in records if r.case.model == "digits-cnn" and r.case.id != lost],
    )
    assert {record.speedup_fastest for record in read_run(folder).records} == {None}
    table = pd.read_csv(io.StringIO(build(folder)["results.csv"]))
    assert table["speedup_fastest.baseline"].isna().all()
