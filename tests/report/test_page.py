"""Rules of qbench/report: the answer, the tables, summary.md, results.csv and the HTML page."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import (
    CASE,
    RUN_V1,
    accuracy,
    failed,
    fp32,
    info,
    int8,
    latency,
    same_as_golden,
    skipped,
    speedup,
)
from made_runs import Page, hostile_run, run_folder

from qbench import formatting
from qbench.decide.judged import SuiteRules
from qbench.decide.judged import judge as judge_records
from qbench.errors import QbenchError, UsageError
from qbench.foreign_text import CONTROL
from qbench.record import jsonl
from qbench.record.schema import InputFit, Interference, Record, Spread, read_case_id
from qbench.record.stored_run import MetricInfo, QuickInfo, RunInfo, read_run
from qbench.report.build import build_report
from qbench.report.cells import list_rows
from qbench.report.columns import draw_cells
from qbench.report.page import _counts, _say_time
from qbench.stats.interval_type import Interval

TOP1 = MetricInfo(name="top1")
QAT = "net/qat/onednn/t1/b1"


# --- words and tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        (Interval(value=2.5134, low=2.46, high=2.57), "2.51 [2.46, 2.57]"),
        (Interval(value=2.5134, low=2.501, high=2.526), "2.513 [2.501, 2.526]"),
        (Interval(value=17.2, low=11.4, high=23.9), "17 [11, 24]"),
        (Interval(value=1234.4, low=900.0, high=1500.0), "1234 [900, 1500]"),
        (Interval(value=0.012345), "0.0123"),
        (Interval(value=-0.0001, low=-0.3, high=0.3), "0.0 [-0.3, 0.3]"),
    ],
)
def test_digits_follow_the_interval(interval: Interval, shown: str) -> None:
    """No digit is shown that the interval does not support; three where there is none; never a negative zero."""
    assert formatting.with_limits(interval) == shown


@given(st.floats(-1e5, 1e5), st.floats(1e-4, 1e4), st.floats(1e-4, 1e4))
def test_shown_limits_keep_their_order(value: float, below: float, above: float) -> None:
    """Rounding never puts the estimate outside its limits."""
    shown = formatting.with_limits(Interval(value=value, low=value - below, high=value + above))
    middle, low, high = (float(number) for number in re.findall(r"-?\d+\.?\d*", shown))
    assert low <= middle <= high


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (formatting.duration(None), "—"),
        (formatting.duration(0.00131), "1.31 ms"),
        (formatting.duration(127.0), "2 min 7 s"),
        (formatting.size(999), "999 B"),
        (formatting.size(31_337), "31.3 kB"),
        (formatting.size(None), "—"),
        (formatting.share(1.0), "100 %"),
        (formatting.share(0.99999), "99.9 %"),
        (formatting.share(1e-9), "0.1 %"),
        (formatting.share(0.0), "0 %"),
        (formatting.share(None), "—"),
    ],
)
def test_units(shown: str, expected: str) -> None:
    """Scaled only for a reader; null is a dash; a share short of all is never called all."""
    assert shown == expected


def test_null_is_a_dash_and_never_zero() -> None:
    """A case of which nothing is known shows dashes alone."""
    empty = replace(int8(), latency=None, speedup=None, artifact=None, accuracy=None)
    judged = judge_records([empty], TOP1, SuiteRules())
    (row,) = list_rows(judged, judged.records, 1e-3)
    assert {str(cell) for cell in draw_cells(row).values()} == {"—", "not judged"}


def test_the_table_shows_fp32_in_effect() -> None:
    """A dynamic variant with next to nothing in int8 is no candidate, and the table says why."""
    nearly = int8("net/dynamic/x86/t1/b1", coverage=0.001, latency=latency(0.0005), speedup=speedup(5.0))
    judged = judge_records([fp32(), int8(), nearly], TOP1, SuiteRules())
    cells = next(draw_cells(row) for row in list_rows(judged, judged.records, 1e-3) if row.record is nearly)
    assert (str(cells["coverage"]), cells["judged"].text) == ("0.1 % practically fp32", "no candidate")
    assert "below the 1 % of quantize.dynamic.min_coverage" in cells["judged"].hint


@pytest.mark.parametrize(
    ("examples", "of", "scored"),
    [
        (500, 10_000, "500 of 10,000 evaluation examples"),
        (450, 450, "all 450 evaluation examples"),
        (None, None, "few evaluation examples"),
    ],
)
def test_a_quick_look_is_said_everywhere(tmp_path: Path, examples: int | None, of: int | None, scored: str) -> None:
    """On the card, on top of the page and of the summary, with what it left out and what to do."""
    look = replace(info(), quick=QuickInfo(examples=examples, of=of))
    folder = run_folder(tmp_path / "run", [fp32(), int8()], look)
    build_report(folder)
    summary, page = ((folder / name).read_text(encoding="utf-8") for name in ("summary.md", "report.html"))
    told = f"quick look: coarse timing in one process, {scored}, nothing trained; run it without --quick to decide"
    assert told in summary
    assert "**quick look at net: " in summary
    assert page.count(told) == 2
    assert "quick look at net · 1 thread · batch 1" in page


# --- the files ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of schema 1 with its three files, compared with itself."""
    folder = tmp_path_factory.mktemp("report") / "run"
    shutil.copytree(RUN_V1, folder)
    assert build_report(folder, other=RUN_V1) == folder / "report.html"
    return folder


def test_summary_is_golden(built: Path) -> None:
    """The whole of summary.md, comparison included."""
    assert same_as_golden("report_summary.md", (built / "summary.md").read_text(encoding="utf-8"))


def test_results_hold_raw_values(built: Path) -> None:
    """Every case is a row, and numbers are what the record holds, unrounded."""
    with (built / "results.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["case.id"]: row for row in csv.DictReader(file)}
    records = {record.case.id: record for record in jsonl.read(RUN_V1)}
    assert rows.keys() == records.keys()
    for case, record in records.items():
        shown = rows[case]["latency.p50_seconds"]
        assert (float(shown) if shown else None) == (record.latency.p50_seconds if record.latency else None)


def test_a_report_is_made_from_stored_files_alone_and_the_same_each_time(built: Path) -> None:
    """Building again changes no byte."""
    names = ("report.html", "summary.md", "results.csv")
    before = {name: (built / name).read_bytes() for name in names}
    build_report(built, other=RUN_V1)
    assert {name: (built / name).read_bytes() for name in names} == before


def test_no_request_leaves_the_page(built: Path) -> None:
    """No address outside the page in any attribute or style, and a policy that forbids all loading."""
    source = (built / "report.html").read_text(encoding="utf-8")
    page = Page(source)
    for _tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), value
    assert not re.search(r"https?://|url\((?!#)|@import", source)
    policy = next(a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'; ")
    assert "unsafe-eval" not in str(policy)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_the_page_is_accessible_by_structure(built: Path) -> None:
    """One h1, a caption and scopes in every table, a name and description in every drawing, ids used once."""
    page = Page((built / "report.html").read_text(encoding="utf-8"))
    assert len(page.all("h1")) == 1
    assert len(page.all("caption")) == len(page.all("table")) > 0
    assert all(attributes.get("scope") in ("col", "row") for attributes in page.all("th"))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    drawings = page.all("svg")
    wide = [attributes for attributes in page.all("div") if attributes.get("class") == "desk"]
    assert len(drawings) == len(page.all("figure")) + len(wide) > 4  # what is too wide for a phone is drawn for it, too
    for drawing in drawings:
        assert drawing["role"] == "img"
        assert set(str(drawing["aria-labelledby"]).split()) <= set(ids)


def test_the_answer_comes_first_and_everything_is_there(built: Path) -> None:
    """Headings in the order of a decider's questions, and the words of the parts that explain."""
    source = (built / "report.html").read_text(encoding="utf-8")
    headings = re.findall(r"<h2[^>]*>(.*?)</h2>", source)
    assert headings == [
        "The answer",
        "Time against accuracy",
        "All cases",
        "Pictures",
        "Which answers changed",
        "Compared with v1",
        "Failed and skipped",
        "What runs in int8",
        "How it was measured",
    ]
    for words in ("digits-cnn: ship static int8 on ONNX Runtime", "closed-loop service time", "killed by signal 9",
                  "AMD EPYC 9R14", "block.conv1", "max_regression: 5%", "second copy of itself"):  # fmt: skip
        assert words in source


def test_the_sentence_of_the_answer_is_the_first_line(tmp_path: Path) -> None:
    """What may change an answer stands above it; counts, and what the machine did, below."""
    record = int8(interference=Interference(blocks=9, involuntary_switches=0, page_faults=0, shared=0.9))
    source = unescape(build_report(run_folder(tmp_path / "run", [fp32(), record])).read_text(encoding="utf-8"))
    stored = json.loads((tmp_path / "run" / "decision.json").read_text(encoding="utf-8"))
    sentence = stored["decisions"][0]["sentence"]
    places = [source.index(words) for words in (f">{sentence}<", 'class="overview"', "p90 and p99 are longer")]
    assert places == sorted(places)


def test_a_command_names_a_file_with_a_space_as_a_shell_takes_it(tmp_path: Path) -> None:
    """It is pasted; and what comes from elsewhere ends no command and begins none."""
    suite = replace(info().suite, file="my suites/a; b.yaml")
    build_report(run_folder(tmp_path / "run", [fp32()], replace(info(), suite=suite)))
    stored = json.loads((tmp_path / "run" / "decision.json").read_text(encoding="utf-8"))
    assert "qbench run 'my suites/a; b.yaml'" in stored["decisions"][0]["next_step"]


def test_the_table_marks_what_the_answer_names(tmp_path: Path) -> None:
    """One case to ship, or the two between which the answer cannot tell."""
    suite = replace(info().suite, text="suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n")
    likely = int8(QAT, latency=latency(0.0006), speedup=speedup(4.0), accuracy=accuracy(harmful=6, beneficial=1))
    for records, words in (([fp32(), int8()], ["ship"]), ([fp32(), int8(), likely], ["either", "either"])):
        folder = run_folder(tmp_path / words[0], records, replace(info(), suite=suite))
        source = build_report(folder).read_text(encoding="utf-8")
        assert re.findall(r'<tbody class="picked"[^>]* data-verdict="(\w+)"', source) == words


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    """Names and reasons open no element, close no drawing and reach no attribute, in HTML, SVG and Markdown."""
    folder = hostile_run(tmp_path / "run")
    source = build_report(folder, other=folder).read_text(encoding="utf-8")
    page = Page(source)
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    assert not CONTROL.search(source)
    assert source.count("</svg>") == len(page.all("svg"))
    assert any('<script>alert("x")</script>' in words for words in page.words)
    for drawing in re.findall(r"<svg.*?</svg>", source, flags=re.DOTALL):
        ElementTree.fromstring(drawing)  # well-formed
    summary = (folder / "summary.md").read_text(encoding="utf-8")
    outside_code = re.sub(r"(?<!\\)`[^`]*`", "", summary)  # an escaped backtick opens no code
    assert "<script>" not in outside_code
    assert "<img" not in outside_code


def test_no_cell_of_a_table_is_a_formula(tmp_path: Path) -> None:
    """What a spreadsheet would run gets an apostrophe, in every table; numbers, also as text, stay as they are."""
    case = "=HYPERLINK(1)/static/onednn/t1/b1"
    good = int8(case, recipe={"flow": "@SUM(A1)", "skip": "\t=1"}, observed={"+key": "-1.5", "other": "-2+3"})
    build_report(run_folder(tmp_path / "run", [fp32(), good, failed("net/qat/x86/t1/b1", reason="\uff1d1\x1b\u202e")]))
    for name in ("results.csv", "flips.csv", "classes.csv"):
        text = (tmp_path / "run" / name).read_text(encoding="utf-8")
        assert not CONTROL.search(text)
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        formulas = [cell for cell in cells if cell[:1] and cell[0] in "=+-@\t\r\uff1d"]
        assert [cell for cell in formulas if not re.fullmatch(r"-[0-9.e-]+", cell)] == []
        if name == "results.csv":
            assert {"'" + case, "'@SUM(A1)", "' =1", "-1.5", "'-2+3", "'\uff1d1\ufffd\ufffd"} <= set(cells)


@pytest.mark.parametrize(
    ("records", "described"),
    [
        ([], info()),
        ([], info((CASE,), finished=None)),
        ([failed(), skipped("net/qat/x86/t1/b1")], info()),
        ([fp32()], info(metric=None)),
        ([int8(samples="samples/gone.npz", predictions="predictions/gone.npz")], info()),
        ([int8(accuracy=None, speedup=None, latency=None, artifact=None)], info()),
        ([fp32(), int8(speedup=speedup(low=None, high=None, control=None))], info()),
    ],
)
def test_any_run_has_a_report(tmp_path: Path, records: list[Record], described: RunInfo) -> None:
    """Empty, unfinished, failed, pruned and half-measured runs are reported, not refused."""
    folder = run_folder(tmp_path / "run", records, described)
    source = build_report(folder).read_text(encoding="utf-8")
    assert "The answer" in source
    assert ("This run is not complete" in source) == (described.finished is None)
    assert (folder / "summary.md").read_text(encoding="utf-8").startswith("# qbench: demo")


def test_many_records_give_a_readable_report(tmp_path: Path) -> None:
    """Of 500 cases every one is in the tables, and the pictures show some of them."""
    records = [fp32()] + [int8(f"net/static/b{number}/t1/b1") for number in range(499)]
    source = build_report(run_folder(tmp_path / "run", records)).read_text(encoding="utf-8")
    assert source.count('<th scope="row" data-sort') == 500
    assert all(svg.count("static · b") < 40 for svg in re.findall(r"<svg.*?</svg>", source, flags=re.DOTALL))
    assert len(source) < 2_500_000


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    """A folder without run.json is named."""
    with pytest.raises(UsageError, match=r"run\.json"):
        build_report(tmp_path)


def test_every_module_says_its_plots_in_words(built: Path) -> None:
    """The description of a drawing holds each number that it shows."""
    source = (built / "report.html").read_text(encoding="utf-8")
    described = re.search(r'<desc id="speedup-description">(.*?)</desc>', source)
    assert described is not None
    assert "over fp32 on the same runtime 2.53 [2.51, 2.56]" in described.group(1)


def test_a_report_that_cannot_be_written_says_how_to_get_it(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk loses no record: the message names the command, and no temporary file stays."""
    folder = tmp_path / "run"
    shutil.copytree(built, folder)
    before = sorted(path.name for path in folder.iterdir())

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(QbenchError, match=r"No space left on device; the records are kept.*qbench report"):
        build_report(folder)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_clipped_inputs_are_the_first_thing_that_a_reader_sees(tmp_path: Path) -> None:
    """In the page above the answer, in summary.md above the tables; the raw numbers stay in results.csv."""
    values = Spread(least=-1.0, greatest=4.0, mean=0.1, deviation=0.5)
    fit = InputFit(evaluated=values, calibrated=replace(values, greatest=1.0), low=-1.0, high=1.0, clipped=0.125)
    record = int8(accuracy=replace(accuracy(), inputs=(fit,)))
    folder = run_folder(tmp_path / "run", [fp32(), record])
    build_report(folder)
    page, summary = ((folder / name).read_text(encoding="utf-8") for name in ("report.html", "summary.md"))
    said = "12.5 % of the values of the inputs are clipped"
    assert 0 < page.index('role="alert"') < page.index(said) < page.index('id="answer"')
    assert 0 < summary.index("warning: ") < summary.index(said) < summary.index("| variant")
    results = (folder / "results.csv").read_text(encoding="utf-8").splitlines()
    (row,) = (line for line in csv.DictReader(results) if line["accuracy.inputs"])
    assert json.loads(row["accuracy.inputs"])["clipped"] == 0.125


def test_inputs_that_fit_are_not_mentioned(built: Path) -> None:
    """No empty box."""
    assert 'role="alert"' not in (built / "report.html").read_text(encoding="utf-8")


def test_examples_that_were_seen_before_are_a_warning(tmp_path: Path) -> None:
    """Where the suite allows evaluation on calibration or training examples, the report says how many there are."""
    record = int8(accuracy=replace(accuracy(), shared_examples=120))
    folder = run_folder(tmp_path / "run", [fp32(), record, int8(QAT, accuracy=replace(accuracy(), shared_examples=0))])
    build_report(folder)
    summary = (folder / "summary.md").read_text(encoding="utf-8")
    assert summary.count("warning: 120 of the 1,000 evaluation examples are calibration or training examples") == 1


def test_what_the_host_did_stands_where_p50_is_explained(tmp_path: Path) -> None:
    """The cell's hint, the method, and a warning say how much of the time something else used the core."""
    host = Interference(blocks=90, involuntary_switches=0, page_faults=0, shared=0.6, undisturbed_blocks=30)
    watched = int8(latency=replace(latency(137e-6), p50_from="undisturbed"), interference=host)
    build_report(run_folder(tmp_path / "run", [fp32(), watched]))
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "<dd>137 µs undisturbed; the host shared the core 60 % of the time</dd>" in page
    assert "something else used the core 60 % to 60 % of the time" not in page
    assert "something else used the core 60 % of the time" in page
    assert "the host shared the core 60 % of the time while 1 of 1 case was measured" in page


def test_other_hosts_have_a_section_of_their_own(tmp_path: Path) -> None:
    """What each file answers there stands on the page and in summary.md; a run on this machine alone says nothing."""
    alone = [fp32(), int8()]
    there = [replace(record, case=read_case_id(f"{record.case.id}/avx2")) for record in alone]
    for name, records, expected in (("one", alone, 0), ("two", [*alone, *there], 1)):
        page = build_report(run_folder(tmp_path / name, records))
        assert page.read_text(encoding="utf-8").count('id="hosts"') == expected
        assert (page.parent / "summary.md").read_text(encoding="utf-8").count("not judged on avx2") == expected
    assert "on avx2 (this chip, older instructions)" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("started", "told"),
    [
        (None, "—"),
        ("2026-11-22T19:07:30+00:00", "2026-11-22 19:07 UTC"),
        ("2026-11-22T19:07:30Z", "2026-11-22 19:07 UTC"),
        ("2026-11-22T19:07:30+01:00", "2026-11-22T19:07:30+01:00"),
        ("2026-11-22Z", "2026-11-22Z"),
        ("2026-11-22T19Z", "2026-11-22T19Z"),
        ("2026-11-22T19:07+00:00", "2026-11-22 19:07 UTC"),
        ("yesterday at noon", "yesterday at noon"),
    ],
)
def test_a_time_is_told_to_the_minute(started: str | None, told: str) -> None:
    """In UTC; what is no such time stays as it is."""
    assert _say_time(started) == told


def test_records_are_counted_by_their_status(tmp_path: Path) -> None:
    """Those that there are; without any, none."""
    run = read_run(run_folder(tmp_path / "run", [fp32(), int8(), failed("net/qat/x86/t1/b1")]))
    assert _counts(run) == "2 ok, 1 failed"
    assert _counts(read_run(run_folder(tmp_path / "none", []))) == "none"


def test_a_page_has_no_gaps_in_its_text(tmp_path: Path) -> None:
    """The lines of a template that write nothing leave nothing: neither an empty line nor blanks."""
    page = build_report(run_folder(tmp_path / "run", [fp32(), int8()])).read_text(encoding="utf-8")
    body = page[page.index("<body") : page.index("<script")]
    assert not [line for line in body.splitlines() if line and not line.strip()]
