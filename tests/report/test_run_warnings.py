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
from qbench.quant.analysis import input_drift
from qbench.quant.sqnr import MOST_DECIBELS
from qbench.record import jsonl
from qbench.record.schema import InputFit, Interference, OtherRuntime, Record, Roofline, Spread
from qbench.record.stored_run import QuickInfo, read_run
from qbench.report.build import build_report, judge
from qbench.report.run_warnings import warn_of_inputs, warn_of_runtimes, warnings


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


def fit(clipped: float | None) -> InputFit:
    """An input whose values from -2 to 2 meet a range from -1 to 1, as in calibration."""
    own, before = (Spread(least=-end, greatest=end, mean=0.0, deviation=1.0) for end in (2.0, 1.0))
    return InputFit(evaluated=own, calibrated=before, low=-1.0, high=1.0, clipped=clipped)


def with_inputs(case: str, *inputs: InputFit | None) -> Record:
    """A case with these inputs."""
    return int8(case, accuracy=replace(accuracy(), inputs=inputs))


def test_values_that_int8_clips_are_told_with_their_input_and_their_cases() -> None:
    """Above the bound; one of several inputs has its number; a sentence that several cases share is said once."""
    first, second = "net/static/onednn/t1/b1", "net/static/x86/t1/b1"
    (told,) = warn_of_inputs([with_inputs(first, fit(0.25)), with_inputs(second, fit(0.25)), int8(accuracy=None)])
    assert told == (
        "25.0 % of the values of the inputs are clipped: they reach from -2 to 2, and int8 takes -1 to 1, as the "
        f"calibration data had -1 to 1; calibrate on examples like those evaluated ({first}, {second})"
    )
    (told,) = warn_of_inputs([with_inputs(first, None, fit(0.25))])
    assert "of the values of input 1 are clipped" in told
    assert warn_of_inputs([with_inputs(first, fit(input_drift.CLIPPED)), with_inputs(second, fit(None))]) == ()


@pytest.mark.parametrize(
    ("hashes", "one_file"), [(("a", "a"), True), (("a", "b"), False), ((None, None), False), (("a", None), False)]
)
def test_runtimes_that_differ_are_told_once_for_both(hashes: tuple[str | None, str | None], one_file: bool) -> None:
    """Cases without a file are not of one file."""
    cases = "net/static/onnxruntime/t1/b1", "net/static/openvino/t1/b1"
    records = [
        with_other(case, other, None if sha256 is None else sha256 * 64, better_db=20.0)
        for case, other, sha256 in zip(cases, cases[::-1], hashes, strict=True)
    ]
    (told,) = warn_of_runtimes(records)
    assert (" are one file, and" in told) == one_file
    assert ", where the better of them keeps 20.0 dB of fp32; the first layer that differs is conv" in told
    (told,) = warn_of_runtimes([with_other(*cases, None, better_db=MOST_DECIBELS)])
    assert "keeps" not in told


def with_other(case: str, other: str, sha256: str | None, *, better_db: float) -> Record:
    """A case whose outputs differ from another one's."""
    runtime = OtherRuntime(case=other, between_db=10.0, better_db=better_db, layer="conv")
    plain = int8(case, accuracy=replace(accuracy(), other_runtime=runtime))
    return replace(plain, artifact=None if sha256 is None else replace(plain.artifact, sha256=sha256))


@pytest.mark.parametrize(("count", "more"), [(3, ""), (4, " and 1 more"), (5, " and 2 more")])
def test_of_files_that_are_gone_three_cases_are_named(tmp_path: Path, count: int, more: str) -> None:
    """And how many more there are."""
    cases = [f"net/static/b{number}/t1/b1" for number in range(count)]
    records = [int8(case, samples=f"gone{number}.npz") for number, case in enumerate(cases)]
    told = warned(run_folder(tmp_path / "run", records))[-1]
    assert told.startswith(
        f"files that records name are not there (any more), of {', '.join(cases[:3])}{more}; shown is"
    )


def test_a_score_on_examples_that_nothing_saw_is_not_warned_of(tmp_path: Path) -> None:
    """None shared is known, not unknown."""
    assert warned(run_folder(tmp_path / "run", [int8(accuracy=replace(accuracy(), shared_examples=0))])) == ()
