"""Why not right, in the report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_explanations import ACCURACY
from made_records import accuracy, fp32, info, int8
from made_runs import Page, run_folder

from qbench import formatting
from qbench.record.explained import ErrorFigures, keep_explained
from qbench.record.stored_run import SuiteInfo, read_run
from qbench.report import build
from qbench.report.explained import list_lost

FP32, WRONG, FINE = "net/fp32/torch/t1/b1", "net/static/onednn/t1/b1", "net/static/fbgemm/t1/b1"
SUITE = SuiteInfo(
    name="demo", file="demo.yaml", text="suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
)


@pytest.fixture
def folder(tmp_path):
    """A run with a case that loses 20 points and one that loses none, both explained."""
    records = [fp32(FP32), int8(WRONG, accuracy=accuracy(harmful=200)), int8(FINE, accuracy=accuracy())]
    folder = run_folder(tmp_path / "reports/demo/1", records, info(suite=SUITE))
    for case in (WRONG, FINE, "net/static/gone/t1/b1"):
        keep_explained(folder, replace(ACCURACY, case=case))
    return folder


def test_causes_are_ordered_by_the_points_that_they_cost(folder):
    """Not by the error: that is how a cause is shown, not what it costs. A case that keeps to the margin is not listed,
    nor one that the run does not have."""
    run = read_run(folder)
    lost = list_lost(run, build.judge(run))
    assert [(row[0], row[1], row[4]) for row in lost.causes.rows] == [
        (WRONG, "+12.0 [+11.0, +13.0] points", "conv in float"),
        (WRONG, "+5.0 [+4.0, +6.0] points", "calibrated by mse"),
    ]
    assert [title for title, _ in lost.advice] == [f"{WRONG}: top1 +19.0 [+18.0, +20.0] points"]


def test_what_changes_no_metric_is_told_without_one(folder):
    """Where labels are missing, causes are known by the error alone: no number stands behind the case, and a dash where
    one would be in a column."""
    causes = tuple(replace(cause, metric_change=None) for cause in ACCURACY.causes)
    figures = replace(ACCURACY.figures, metric_change=None)
    keep_explained(folder, replace(ACCURACY, case=WRONG, causes=causes, figures=figures))
    run = read_run(folder)
    lost = list_lost(run, build.judge(run))
    assert lost.advice == ((WRONG, ACCURACY.suite),)
    assert [row[1] for row in lost.causes.rows] == [formatting.DASH] * 2


def test_a_layer_has_what_it_takes_away_alone_and_with_those_above_it(folder):
    """A dash where it was not tried together."""
    run = read_run(folder)
    rows = list_lost(run, build.judge(run)).layers.rows
    assert [row[1:4] for row in rows] == [
        ("conv", "50.0 [49.0, 51.0] %", "50.0 %"),
        ("head", "-10.0 [-11.0, -9.0] %", formatting.DASH),
    ]


def test_the_page_and_the_summary_say_why(folder):
    """With what is not explained, and what to write; a title from elsewhere is text, not markup."""
    build.build_report(folder)
    text = " ".join(Page((folder / "report.html").read_text(encoding="utf-8")).words)
    assert "Why not right" in text
    assert "10.0 % of the error is not explained" in text
    assert "quantize: {static: {skip_layers: [conv]}}" in text
    assert "<b>bold</b>" in text
    assert "Why not right" in (folder / "summary.md").read_text(encoding="utf-8")


def test_a_damaged_file_is_said_where_the_causes_would_stand(folder):
    """And nothing else is lost."""
    (folder / ErrorFigures.file).write_text("{", encoding="utf-8")
    build.build_report(folder)
    for name in ("report.html", "summary.md"):
        assert "cannot be read as explanations" in (folder / name).read_text(encoding="utf-8")


def test_where_accuracy_is_fine_there_is_no_such_section(tmp_path):
    """Nothing is wrong there."""
    records = [fp32(FP32), int8(WRONG, accuracy=accuracy())]
    folder = run_folder(tmp_path / "reports/demo/1", records, info(suite=SUITE))
    keep_explained(folder, ACCURACY)
    build.build_report(folder)
    assert "Why not right" not in (folder / "report.html").read_text(encoding="utf-8")


def test_outputs_that_are_those_of_fp32_are_said_to_be_so(folder):
    """A change of the metric only where it is known; without a cause that is said in place of the rest."""
    figures = replace(ACCURACY.figures, sqnr_db=None, against_fp32=None)
    keep_explained(folder, replace(ACCURACY, case=WRONG, figures=figures, causes=(), unexplained=None))
    run = read_run(folder)
    assert list_lost(run, build.judge(run)).sentences == (
        f"{WRONG}: on 500 examples the same outputs as fp32 against fp32; no change that was tried is confirmed as a "
        "cause.",
    )
