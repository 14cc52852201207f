"""Rules of qbench/report/run_warnings.py: what to know of a run before any figure, the same wherever it is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_records import accuracy, fp32, info, int8
from made_runs import run_folder

from qbench.cli.answer import print_answer, read_answer
from qbench.formatting import one_line
from qbench.record import jsonl
from qbench.record.schema import Interference, Record, Roofline
from qbench.record.stored_run import QuickInfo, read_run
from qbench.report.build import build_report, judge
from qbench.report.run_warnings import warnings


def warned(folder: Path) -> tuple[str, ...]:
    """The warnings on a run that nothing else has read yet."""
    run = read_run(folder, lenient=True)
    return warnings(run, judge(run), ())


def test_what_the_host_did_and_what_is_impossible_is_warned_of(tmp_path: Path) -> None:
    """A run whose core was shared for long, or that reads faster than its core can compute, says so."""
    shared = Interference(blocks=9, involuntary_switches=0, page_faults=0, shared=0.6)
    told = warned(
        run_folder(tmp_path / "run", [int8(interference=shared, roofline=Roofline(macs=1, peak_fraction=2.0))])
    )
    assert "faster than possible" in told[0]
    assert "the host shared the core 60 %" in told[1]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A quick run with a truncated file of samples, and one of layers and one of predictions that are gone."""
    folder = run_folder(tmp_path / "run", [], info(quick=QuickInfo(examples=10, of=100)))
    (folder / "samples").mkdir()
    np.savez(folder / "samples" / "a.npz", calls_ns=np.arange(100), block=np.arange(100))
    whole = (folder / "samples" / "a.npz").read_bytes()
    (folder / "samples" / "a.npz").write_bytes(whole[:-50])
    other: Record = int8("net/qat/onednn/t1/b1", layers="layers/gone.json")
    records = [fp32(), int8(samples="samples/a.npz"), replace(other, predictions="predictions/gone.npz")]
    jsonl.write(folder / "records.jsonl", records)
    return folder


def test_a_file_that_is_cut_or_gone_is_said_in_all_four_places(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Page, summary.md, terminal and decision.json (and ``--json``) give the same, whatever was read before."""
    told = warned(damaged)
    assert ["samples/a.npz" in warning for warning in told] == [False, True, False]
    assert "not there (any more), of net/qat/onednn/t1/b1;" in told[2]
    build_report(damaged)
    print_answer(damaged, wide=False)
    terminal = one_line(capsys.readouterr().out)
    summary = (damaged / "summary.md").read_text(encoding="utf-8")
    page = (damaged / "report.html").read_text(encoding="utf-8")
    stored = json.loads((damaged / "decision.json").read_text(encoding="utf-8"))
    assert stored["warnings"] == list(told) == read_answer(damaged)["warnings"]
    for warning in told:
        assert terminal.count(one_line(warning)) == 1
        assert warning[:40] in page
        assert warning[:40] in summary.replace("\\", "")


def test_a_score_on_what_calibration_saw_is_warned_of(tmp_path: Path) -> None:
    """Where the suite allows overlap, the number stands beside every figure."""
    told = warned(run_folder(tmp_path / "run", [fp32(), int8(accuracy=replace(accuracy(), shared_examples=3))]))
    assert told[0].startswith("3 of the 1,000 evaluation examples are calibration or training examples, too")


def test_what_a_stage_noted_is_told_with_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A note that passed by on the progress, or that --quiet left out, stands in decision.json, page and summary."""
    folder = run_folder(tmp_path / "run", [fp32(), int8()], info(notes=("net: fp32 guesses",)))
    assert warned(folder) == ("net: fp32 guesses",)
    build_report(folder)
    print_answer(folder, wide=False)
    told = [capsys.readouterr().out, *((folder / name).read_text() for name in ("summary.md", "report.html"))]
    assert all("net: fp32 guesses" in text for text in told)
    assert json.loads((folder / "decision.json").read_text())["warnings"] == ["net: fp32 guesses"]


def test_a_whole_run_has_none_of_it(tmp_path: Path) -> None:
    """Nothing is said of files that are there, or that no record names."""
    assert warned(run_folder(tmp_path / "run", [fp32(), int8()])) == ()
