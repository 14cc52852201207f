"""Why not faster, in the report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import fp32, int8
from made_runs import Page, run_folder

from qbench.compare import host_share
from qbench.record.explained import ExplainedCase, ExplainedCause, TimeFigures, keep_explained
from qbench.record.stored_run import read_run
from qbench.report import build
from qbench.report.explained import list_slow
from qbench.stats.interval_type import Interval

STATIC, FP32 = "net/static/onednn/t1/b1", "net/fp32/torch/t1/b1"


def cause(title, seconds, share):
    """A cause that saves so much."""
    return ExplainedCause(
        title=title, change=f"no {title}", saving=Interval(value=2.0, low=1.9, high=2.1), seconds=seconds, share=share
    )


CASE = ExplainedCase(
    case=STATIC,
    figures=TimeFigures(
        seconds=1e-4, fp32_seconds=2e-4, best_seconds=4e-5, best="the fastest of the run",
        environment=("unset ONEDNN_MAX_CPU_ISA",),
    ),
    causes=(cause("threads", 1e-5, 0.2), cause("<b>bold</b>", 4e-5, 0.7)), unexplained=0.1,
    suite="matrix: {threads: [1]}", note="Its top1: 0.0 points against fp32.",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A run with one explained case."""
    folder = run_folder(tmp_path / "reports/demo/1", [fp32(FP32), int8(STATIC)])
    keep_explained(folder, CASE)
    return folder


def test_causes_are_ordered_by_what_they_save(folder):
    """The largest first, over all cases; those of cases that the run does not have are left out."""
    keep_explained(folder, replace(CASE, case="net/static/gone/t1/b1"))
    rows = list_slow(read_run(folder)).causes.rows
    assert [(row[0], row[1], row[3]) for row in rows] == [(STATIC, "40.0 µs", "70.0 %"), (STATIC, "10.0 µs", "20.0 %")]


def test_the_page_and_the_summary_say_why(folder):
    """With the gap, what is not explained, and what to write; a title from elsewhere is text, not markup."""
    build.build_report(folder)
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    text = " ".join(page.words)
    assert "Why not faster" in text
    assert "10.0 % of the gap is not explained" in text
    assert "matrix: {threads: [1]}" in text
    assert "<b>bold</b>" in text
    assert "Why not faster" in (folder / "summary.md").read_text(encoding="utf-8")


def test_a_damaged_file_is_said_where_the_causes_would_stand(folder):
    """And nothing else is lost."""
    (folder / TimeFigures.file).write_text("{", encoding="utf-8")
    build.build_report(folder)
    for name in ("report.html", "summary.md"):
        assert "cannot be read as explanations" in (folder / name).read_text(encoding="utf-8")


def test_a_run_without_explanations_has_no_such_section(folder):
    """Nothing is promised."""
    (folder / TimeFigures.file).unlink()
    build.build_report(folder)
    assert "Why not faster" not in (folder / "report.html").read_text(encoding="utf-8")


def test_causes_that_overlap_with_the_confirmed_ones_are_named(folder):
    """With what each gains alone: two may cost the same time, and either of them can be taken away."""
    keep_explained(folder, replace(CASE, figures=replace(CASE.figures, overlapping=(cause("denormals", 3e-5, 0.5),))))
    (sentence,) = list_slow(read_run(folder)).sentences
    assert "alone, but not beyond these, gain no denormals: 2.00 [1.90, 2.10] times as fast" in sentence


def test_an_explanation_of_a_busy_machine_says_so(folder):
    """On the page as in the terminal: its gains may be too large."""
    keep_explained(folder, replace(CASE, figures=replace(CASE.figures, off_core=0.3)))
    (sentence,) = list_slow(read_run(folder)).sentences
    assert "other processes of this machine had the core 30 % of the time meanwhile" in sentence


def describe(tmp_path, **changes):
    """The sentence on the case, and the section that it is of."""
    figures = {name: changes.pop(name) for name in ("best_seconds", "off_core", "over_fp32") if name in changes}
    folder = run_folder(tmp_path / "run", [fp32(FP32), int8(STATIC)])
    keep_explained(folder, replace(CASE, figures=replace(CASE.figures, **figures), note=None, **changes))
    section = list_slow(read_run(folder))
    (sentence,) = section.sentences
    return sentence, section


def test_a_case_at_its_best_has_no_gap(tmp_path):
    """Nothing that it could take, and no share of it; a cause whose seconds are not known saves none."""
    causes = (cause("threads", None, None), cause("layers", 1e-5, None))
    sentence, section = describe(tmp_path, best_seconds=1e-4, causes=causes)
    assert sentence == f"{STATIC}: 100 µs for one example."
    assert [(row[1], row[3]) for row in section.causes.rows] == [("10.0 µs", "—"), ("0 s", "—")]


def test_a_case_without_a_cause_says_so(tmp_path):
    """With the ratio to fp32 where that is known, and the share of the time from which on others had the core."""
    ratio = Interval(value=0.8, low=0.75, high=0.85)
    sentence, section = describe(tmp_path, causes=(), unexplained=1.0, over_fp32=ratio, off_core=host_share.OFF_CORE)
    assert sentence.startswith(
        f"{STATIC}: 100 µs for one example, 0.80 [0.75, 0.85] times what fp32 takes; it could take 40.0 µs (the "
        "fastest of the run); no cause that was tried makes it slower; "
    )
    assert host_share.describe_off_core([host_share.OFF_CORE], "meanwhile") in sentence
    assert section.causes.rows == ()


def test_four_causes_that_overlap_are_named(tmp_path):
    """And how many more there are."""
    folder = run_folder(tmp_path / "run", [fp32(FP32), int8(STATIC)])
    overlapping = tuple(cause(f"c{number}", 1e-5, 0.1) for number in range(5))
    keep_explained(folder, replace(CASE, figures=replace(CASE.figures, overlapping=overlapping)))
    (sentence,) = list_slow(read_run(folder)).sentences
    assert "no c3: 2.00 [1.90, 2.10] times as fast and 1 more" in sentence
    assert "no c4" not in sentence


def test_what_is_to_be_set_stands_below_what_is_to_be_written(folder):
    """By the case; nothing where there is neither."""
    assert list_slow(read_run(folder)).advice == ((STATIC, "matrix: {threads: [1]}\nunset ONEDNN_MAX_CPU_ISA"),)
    keep_explained(folder, replace(CASE, suite=None))
    assert list_slow(read_run(folder)).advice == ((STATIC, "unset ONEDNN_MAX_CPU_ISA"),)
    keep_explained(folder, replace(CASE, suite=None, figures=replace(CASE.figures, environment=())))
    assert list_slow(read_run(folder)).advice == ()


def test_a_share_below_nothing_is_nothing(folder):
    """A cause that saves less than nothing beside others, and more than all explained."""
    causes = (cause("threads", -1e-5, -0.2),)
    keep_explained(folder, replace(CASE, causes=causes, unexplained=-0.1))
    section = list_slow(read_run(folder))
    assert section.causes.rows[0][1] == "0 s"
    assert section.causes.rows[0][3] == "0 %"
    assert "; 0 % of the gap is not explained" in section.sentences[0]
    assert section.sentences[0].endswith("explained. Its top1: 0.0 points against fp32.")
