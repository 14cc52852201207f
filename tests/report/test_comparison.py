"""Rules of qbench/report/comparison.py: two runs side by side, in the page and in summary.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from made_records import CASE, FP32, accuracy, failed, fp32, info, int8, speedup
from made_runs import Page, hostile_run, predictions, run_folder, write_with_predictions
from rendered_markdown import foreign

from qbench.compare.changes import CaseChange
from qbench.compare.environment import SAME_RUN
from qbench.decide.cases import Setting
from qbench.decide.decision import Decision
from qbench.record import jsonl
from qbench.record.commit import Commit
from qbench.record.schema import Record
from qbench.record.stored_run import QuickInfo, RunInfo, StoredRun, SuiteInfo, read_run
from qbench.report.build import build_report
from qbench.report.comparison import ERROR, _answers, _notes, _tone, case_changes

SUITE = """suite: demo
models: [{name: digits-cnn}]
data: {dataset: digits}
matrix: {modes: [static], backends: [onednn]}
"""
LARGER = "net/static/x86/t1/b1"


def described(text: str = "gate: {accuracy: {margin: 1.0}}\n", **changes: object) -> RunInfo:
    """A run of a suite with this text."""
    return replace(info(), suite=SuiteInfo(name="demo", file="demo.yaml", text=text), **changes)


def build(tmp_path: Path, before: list[Record], after: list[Record], old: RunInfo, new: RunInfo) -> tuple[str, str]:
    """The page and the summary of a run compared with another."""
    base = run_folder(tmp_path / "base", before, old)
    folder = run_folder(tmp_path / "run", after, new)
    page = build_report(folder, other=base).read_text(encoding="utf-8")
    return page, (folder / "summary.md").read_text(encoding="utf-8")


def test_only_what_changed_is_open(tmp_path: Path) -> None:
    """The slower, the larger and the failed case are seen at once; the unchanged one is under a fold, counted."""
    before = [fp32(), int8(), int8(LARGER), int8("net/qat/x86/t1/b1"), int8("net/qat/onednn/t1/b1")]
    after = [
        fp32(),
        int8(speedup=speedup(2.0)),
        int8(LARGER, size_bytes=300_000),
        failed("net/qat/x86/t1/b1"),
        int8("net/qat/onednn/t1/b1"),
    ]
    page, summary = build(tmp_path, before, after, described(), described())
    sentence = "3 of 5 cases changed (1 slower, 1 larger, 1 now failed)."
    section = page[page.index('id="compared"') :]
    opened, _, folded = section.partition("<details>")
    assert sentence in opened
    assert '<span class="pill bad">slower</span>' in opened
    assert '<span class="pill bad">now failed</span>' in opened
    assert "the worker was killed by signal 9" in opened
    assert "net/qat/onednn/t1/b1" not in opened
    assert "net/qat/onednn/t1/b1" in folded[: folded.index("</details>")]
    told = summary[summary.index("**Compared with base**") :]
    assert sentence in told
    assert "net/qat/onednn/t1/b1" not in told.partition("<details>")[0]
    assert "2 cases without a change that is shown" in told


def test_another_answer_is_told_before_any_case(tmp_path: Path) -> None:
    """Which setting has another answer, from what to what."""
    page, summary = build(
        tmp_path,
        [fp32(), int8()],
        [fp32(), int8(accuracy=accuracy(harmful=90))],
        described(SUITE),
        described(SUITE),
    )
    for text in (page, summary):
        assert "The answer changed in 1 of 1 settings" in text
        assert "Ship static int8 on oneDNN (PyTorch)." in text
        assert "None qualifies" in text


def test_a_run_compared_with_itself_says_so(tmp_path: Path) -> None:
    """In the page and in the summary, in place of a sentence that counts changes."""
    page, summary = build(tmp_path, [fp32(), int8()], [fp32(), int8()], described(), described())
    for text in (page, summary):
        assert SAME_RUN in text
        assert "cases changed" not in text


def test_machine_versions_commit_and_suite_are_compared(tmp_path: Path) -> None:
    """What differs is listed before and after, changed lines of the suite are shown; latency of another machine is
    not compared."""
    old = described(versions={"torch": "2.12"}, commit=Commit(sha="a" * 40, subject="the first"))
    new = described("gate: {accuracy: {margin: 2.0}}\n", versions={"torch": "2.13"}, environment={"cpu": "CPU B"})
    page, summary = build(tmp_path, [fp32(), int8()], [fp32(), int8(speedup=speedup(1.0))], old, new)
    for text in (page, summary):
        for words in ("2.12", "2.13", "CPU A", "CPU B", "aaaaaaaaa the first", "latency not comparable"):
            assert words in text
        assert "-gate: {accuracy: {margin: 1.0}}" in text
        assert "+gate: {accuracy: {margin: 2.0}}" in text


def test_predictions_pair_the_accuracy(tmp_path: Path) -> None:
    """12 answers of 200 that turned wrong are shown where both runs keep predictions."""
    labels = [place % 10 for place in range(200)]
    wrong = [(label + 1) % 10 if place < 12 else label for place, label in enumerate(labels)]
    folders = []
    for name, own in (("base", labels), ("run", wrong)):
        folder = run_folder(tmp_path / name, [], info((FP32, CASE)))
        score = accuracy(n=200, right=200 if name == "base" else 188)
        records = [
            write_with_predictions(folder, fp32(), predictions(labels, labels)),
            write_with_predictions(folder, int8(accuracy=score), predictions(own, labels)),
        ]
        jsonl.write(folder / "records.jsonl", records)
        folders.append(read_run(folder))
    changes = {change.delta.case: change for change in case_changes(*folders)}
    assert changes[CASE].delta.paired == 200
    assert changes[CASE].verdict == "less accurate"


def test_a_hostile_run_compared_stays_text(tmp_path: Path) -> None:
    """Names, machines and suites open no element; the lines of a suite end no block of Markdown."""
    folder = hostile_run(tmp_path / "run")
    other = hostile_run(tmp_path / "<b>other")
    page = Page(build_report(folder, other=other).read_text(encoding="utf-8"))
    assert len(page.all("script")) == 1
    assert page.all("img") == []
    fence = described("```\n</details>\n    <script>\n")
    _, summary = build(tmp_path / "fence", [fp32()], [fp32()], described(), fence)
    assert [each for each in foreign(summary) if not each.startswith("code_block")] == []


@pytest.mark.parametrize(
    ("words", "change", "tone"),
    [
        (("slower",), "compared", "bad"),
        (("faster",), "compared", "good"),
        (("slower", "smaller"), "compared", "unsure"),
        (("slower", "larger"), "compared", "bad"),
        ((), "compared", ""),
        ((), "now ok", "good"),
        ((), "new", ""),
        ((), "gone", "bad"),
        ((), "now failed", "bad"),
        ((), "now skipped", "bad"),
    ],
)
def test_a_change_is_for_the_worse_for_the_better_or_both(words: tuple[Any, ...], change: Any, tone: str) -> None:
    """What was not measured again is none of it."""
    assert _tone(CaseChange(delta=cast("Any", SimpleNamespace(change=change)), words=words)) == tone


def decided(verdict: Any, pick: Record | None = None, runner_up: Record | None = None, model: str = "net") -> Decision:
    """The answer of a setting."""
    setting = Setting(model=model, threads=1, batch_size=1)
    return Decision(setting=setting, verdict=verdict, headline=verdict, pick=pick, runner_up=runner_up)


def test_an_answer_is_the_same_where_it_names_the_same_cases() -> None:
    """Either of two in any order; who came next to what is shipped is no part of it; a setting of one run is told."""
    own, other = int8(), int8(LARGER)
    assert _answers([decided("ship", own, other)], [decided("ship", own)]) == ((), 1)
    assert _answers([decided("either", own, other)], [decided("either", other, own)]) == ((), 1)
    for before, after in (
        (decided("ship", own), decided("ship", other)),
        (decided("ship", own), decided("either", own, other)),
        (decided("either", own, other), decided("either", own, int8("net/qat/x86/t1/b1"))),
    ):
        rows, same = _answers([before], [after])
        assert (len(rows), same) == (1, 0)
    rows, same = _answers([decided("ship", own)], [decided("ship", own, model="new")])
    assert [row[1:] for row in rows] == [("not in this run", "ship"), ("ship", "not in this run")]
    assert same == 0


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ({}, {}, []),
        ({"quick": QuickInfo(examples=5, of=50)}, {}, ["A quick look is coarse"]),
        ({}, {"quick": QuickInfo(examples=5, of=50)}, ["A quick look is coarse"]),
        ({"finished": None}, {}, ["The other run was not finished."]),
        ({}, {"finished": None}, ["This run was not finished."]),
        ({"suite": SuiteInfo(name="other")}, {}, ["The other run is of another suite, other:"]),
    ],
)
def test_what_limits_a_comparison_is_noted(old: dict[str, Any], new: dict[str, Any], told: list[str]) -> None:
    """After what all of them share."""
    base, contender = (
        StoredRun(folder=Path("/none"), info=replace(info(), **changes), records=()) for changes in (old, new)
    )
    notes = _notes(base, contender, ())
    assert notes[0] == ERROR
    assert len(notes) == 1 + len(told)
    assert all(note.startswith(start) for note, start in zip(notes[1:], told, strict=True))
