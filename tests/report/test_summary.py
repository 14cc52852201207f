"""Rules of qbench/report/summary.py: what a pull request is told of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_records import CASE, FP32, RUN_V1, accuracy, failed, fp32, info, int8, skipped, speedup
from made_runs import HOSTILE, hostile_run, run_folder
from rendered_markdown import elements_of, foreign, words_of

from qbench.decide import decision
from qbench.decide.judged import SuiteRules, judge
from qbench.formatting import one_line
from qbench.record.schema import Record, read_case_id
from qbench.record.stored_run import MetricInfo, PlanInfo, QuickInfo, RunInfo, StoredRun
from qbench.report.build import build_report
from qbench.report.ruling import rule
from qbench.report.summary import LIMIT, OPEN_SETTINGS, _escape, _ratio, candidates, summary
from qbench.stats.interval_type import Interval


def write(records: list[Record], described: RunInfo | None = None) -> str:
    """The summary of some records; none of them has a file."""
    run = StoredRun(folder=Path("/none"), info=described or info(), records=tuple(records))
    judged = judge(run.records, MetricInfo(name="top1"), SuiteRules())
    decisions = decision.decide(judged)
    return summary(run, judged, decisions, rule(judged, decisions), changes=())


def test_the_answer_is_the_first_sentence() -> None:
    """That of each setting; of many they come after how many have which answer."""
    text = write([fp32(), int8()])
    assert text.startswith("# qbench: demo\n\n**net: ship static int8 on oneDNN (PyTorch): 2.5 times as fast")
    several = [fp32(), int8(), fp32("b/fp32/torch/t1/b1"), int8("b/static/onednn/t1/b1", accuracy=accuracy(harmful=90))]
    assert write(several).startswith("# qbench: demo\n\n- **net: ship static int8 on oneDNN (PyTorch): ")
    assert "\n- **b: none qualifies: " in write(several)
    models = [f"net{number}" for number in range(OPEN_SETTINGS + 1)]
    records = [
        make(f"{model}/{case}/t1/b1") for model in models for make, case in ((fp32, "fp32/torch"), (int8, "qat/x86"))
    ]
    assert write(records).startswith("# qbench: demo\n\nOf 7 settings: ship int8 in 7.\n\n- **net0: ship ")


def test_an_answer_that_depends_on_the_machine_is_said_under_the_first_sentence() -> None:
    """Before any table; a run whose hosts agree has no such line."""
    here = [fp32(), int8()]
    lossy = [fp32(), int8(accuracy=accuracy(harmful=90))]
    there = [replace(record, case=read_case_id(f"{record.case.id}/avx2")) for record in lossy]
    first = write([*here, *there]).partition("| variant")[0]
    assert "it depends on the machine" in first
    assert "it depends on the machine" not in write(here)


def test_what_may_be_shipped_is_open_in_six_columns_and_the_rest_is_folded() -> None:
    """The fp32 first, the pick stands out; what loses too much is under a fold, with the reason."""
    lossy = int8("net/static/qnnpack/t1/b1", accuracy=accuracy(harmful=90))
    text = write([fp32(), int8(), int8("net/qat/onednn/t1/b1"), lossy])
    visible, _, folded = text.partition("<details>")
    header = next(line for line in visible.splitlines() if line.startswith("| variant"))
    assert header.count("|") == 7
    rows = [line for line in visible.splitlines() if line.startswith("| ") and line != header]
    assert rows[0].startswith("| fp32 on PyTorch | 2.50 | 1 (reference) |")
    (pick,) = (row for row in rows if row.startswith("| **"))
    assert "| **260 kB (26 % of fp32)** |" in pick
    assert "QNNPACK" not in visible
    assert "QNNPACK" in folded
    assert "loses too much" in folded


def test_warnings_and_what_is_missing_stand_open() -> None:
    """A quick look, an unfinished run and data that does not fit are seen before any table."""
    described = info((FP32, CASE), finished=None, quick=QuickInfo(examples=10, of=100))
    visible = write([fp32()], described).partition("<details>")[0]
    assert "This run is not complete: 1 of 2 planned cases have no record yet." in visible
    assert "- warning: quick look" in visible
    assert visible.index("warning") < visible.index("| variant")


@pytest.mark.parametrize("count", [1, 24, 300, 10_000])
def test_it_stays_under_what_a_comment_may_have(count: int) -> None:
    """At any number of cases, settings, failures and letters of a name; every table that is begun is whole."""
    name, most = "m" * 200, min(count, 300)
    records: list[Record] = []
    for setting in range(max(1, most // 20)):
        base = f"{name}{setting}/fp32/torch/t1/b1"
        int8s = [f"{name}{setting}/static/backend{place}/t1/b1" for place in range(max(1, most // 20))]
        records += [fp32(base), *(int8(case, speedup=speedup(baseline=base)) for case in int8s)]
    records += [skipped(f"{name}/qat/x{place}/t1/b1", reason="why " * 100) for place in range(count - len(records))]
    described = info(plan=PlanInfo(cases=tuple(record.case.id for record in records)))
    text = write(records, described)
    assert len(text) < LIMIT
    assert text.count("<details>") == text.count("</details>")
    assert foreign(text) == []
    assert ("more" in text) or count < 300


def test_many_settings_are_folded_after_the_first() -> None:
    """A reader sees six answers, and how many more there are."""
    models = [f"net{place}" for place in range(9)]
    records = [fp32(f"{model}/fp32/torch/t1/b1") for model in models]
    records += [
        int8(f"{model}/static/onednn/t1/b1", speedup=speedup(baseline=f"{model}/fp32/torch/t1/b1")) for model in models
    ]
    text = write(records)
    visible = text.partition("<details>")[0]
    assert visible.count("- **net") == OPEN_SETTINGS
    assert "The other 3 settings" in text
    assert "Setting 9: its candidates and fp32" in text


@pytest.mark.parametrize("compared", [False, True])
def test_hostile_names_are_inert(tmp_path: Path, compared: bool) -> None:
    """Names of the suite, models, files and reasons of failures are read as words by an independent parser."""
    folder = hostile_run(tmp_path / "run")
    build_report(folder, other=folder if compared else None)
    text = (folder / "summary.md").read_text(encoding="utf-8")
    assert foreign(text) == []
    assert elements_of(text) <= {
        *("h1", "p", "strong", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"),
        *("details", "summary", "span"),
    }
    assert one_line(HOSTILE)[:40] in words_of(text)
    assert "$" not in text


def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    """No clock, no order of a set: a summary that is built again is the same file."""
    records = [fp32(), int8(), failed("net/qat/x86/t1/b1"), skipped("net/qat/fbgemm/t1/b1")]
    folder = run_folder(tmp_path / "run", records, replace(info()))
    build_report(folder)
    first = (folder / "summary.md").read_bytes()
    build_report(folder)
    assert (folder / "summary.md").read_bytes() == first


def test_a_run_of_schema_1_has_a_summary(tmp_path: Path) -> None:
    """The real files of the first schema are read, and every line is Markdown that is only text."""
    import shutil

    shutil.copytree(RUN_V1, tmp_path / "run")
    build_report(tmp_path / "run")
    text = (tmp_path / "run" / "summary.md").read_text(encoding="utf-8")
    assert foreign(text) == []
    assert "Which answers flipped" in text


def test_of_many_cases_the_first_of_each_kind_are_open() -> None:
    """The fastest fp32 and the best candidates; the others are under the fold."""
    floats = [fp32(f"net/fp32/b{number:02}/t1/b1") for number in range(9)]
    several = [int8(f"net/static/b{number:02}/t1/b1") for number in range(9)]
    judged = judge([*floats, *several], MetricInfo(name="top1"), SuiteRules())
    (decided,) = decision.decide(judged)
    table = candidates(decided, judged, rule(judged, [decided]))
    assert (len(table.open.rows), len(table.rest.rows)) == (16, 2)
    assert sorted(row[0].split(" ")[0] for row in table.rest.rows) == ["fp32", "static"]


@pytest.mark.parametrize(
    ("word", "ratio", "shown"),
    [
        ("keep", Interval(value=1.0), "1 (reference)"),
        ("keep", Interval(value=1.2, low=1.1, high=1.3), "1.20 [1.10, 1.30]"),
        ("fastest fp32", None, "1 (reference)"),
        ("slower", Interval(value=0.5, low=None, high=None), "0.50"),
        ("keep", None, "—"),
    ],
)
def test_the_reference_is_the_fp32_that_nothing_was_measured_against(word, ratio, shown) -> None:
    """A ratio without limits of what is kept is that to itself."""
    assert _ratio(SimpleNamespace(word=word, over_fp32=ratio)) == shown


def test_the_reasons_of_one_setting_need_no_heading() -> None:
    """Of several each has its own; the last setting that is open has its table open."""
    single = write([fp32(), int8()])
    heading = "**net, 1 thread, batch 1**"
    _, _, folded = single.partition("Figures, how sure")
    assert heading in single.partition("<details>")[0]
    assert heading not in folded.partition("</details>")[0]
    models = [f"net{number}" for number in range(OPEN_SETTINGS + 1)]
    records = [
        make(f"{model}/{case}/t1/b1") for model in models for make, case in ((fp32, "fp32/torch"), (int8, "qat/x86"))
    ]
    many = write(records)
    assert "Setting 7: its candidates and fp32" in many
    assert "Setting 6: " not in many
    assert "**net5, 1 thread, batch 1**" in many.partition("Figures, how sure")[2].partition("</details>")[0]


def test_a_sentence_has_600_letters_at_most() -> None:
    """A reason or a warning may be anybody's text: its middle is left out."""
    assert _escape("x" * 600) == "x" * 600
    assert _escape("x" * 601) == f"{'x' * 299}\u2026{'x' * 300}"


def test_cases_without_a_result_are_listed_with_their_reason_or_without() -> None:
    """Failed first, then skipped, then those that have no record; a stage where one is known."""
    records = [
        fp32(),
        skipped("net/qat/a/t1/b1", reason="why"),
        replace(failed("net/qat/b/t1/b1"), stage=None, reason=None),
    ]
    text = write(records, info((*(record.case.id for record in records), "net/qat/c/t1/b1")))
    told = text.partition("Failed and skipped (3)")[2].partition("</details>")[0]
    assert [line for line in told.splitlines() if line.startswith("- ")] == [
        "- failed: net/qat/b/t1/b1: ",
        "- skipped (plan): net/qat/a/t1/b1: why",
        "- no record: net/qat/c/t1/b1",
    ]
