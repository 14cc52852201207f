"""Rules of qbench/cli/answer.py: what ``qbench run`` prints of a run."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import accuracy, failed, fp32, info, int8, latency, speedup
from made_runs import run_folder
from rendered_markdown import words_of

from qbench.cli.answer import print_answer, print_files
from qbench.formatting import one_line
from qbench.record.schema import HostFacts, Record
from qbench.record.stored_run import QuickInfo, SuiteInfo
from qbench.report.build import build_report

SUITE = """
suite: demo
models: [{name: net, source: {python: "net.py:make"}}]
data: {dataset: digits}
matrix: {modes: [fp32, static], backends: [torch, onednn]}
gate: {accuracy: {metric: top1, margin: 2.0}}
"""


def test_the_answer_names_variants_in_words_and_the_table_in_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same name as on the page and in summary.md; a table of 80 columns has no room for it."""
    other = int8("net/static/x86/t1/b1", accuracy=accuracy(harmful=60))
    print_answer(run_folder(tmp_path / "run", [fp32(), int8(), other]), wide=False)  # its suite cannot be read
    answer, _, table = capsys.readouterr().out.partition("\nnet, 1 thread")
    assert "undecided: static int8 on oneDNN (PyTorch), the fastest" in one_line(answer)
    assert "(static int8 on x86 (PyTorch))" in one_line(answer)
    assert "static · onednn" not in answer
    assert "static · onednn" in table


@pytest.mark.parametrize(
    "records",
    [
        [fp32(), int8()],
        [fp32(), int8(latency=latency(0.005), speedup=speedup(0.5))],
        [fp32(), int8(accuracy=accuracy(harmful=17, beneficial=2))],
        [fp32(), int8(accuracy=accuracy(harmful=90))],
        [fp32(), failed()],
        [fp32(), int8(), fp32("b/fp32/torch/t1/b1"), int8("b/static/x86/t1/b1", accuracy=accuracy(harmful=90))],
    ],
    ids=["ship", "keep fp32", "undecided", "none qualifies", "no answer", "two models"],
)
def test_the_answer_is_one_sentence_in_four_places(
    records: list[Record], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page, the terminal, summary.md and decision.json begin with it, word for word."""
    folder = run_folder(tmp_path / "run", records, info(suite=SuiteInfo(name="demo", text=SUITE)))
    page = build_report(folder).read_text(encoding="utf-8")
    print_answer(folder, wide=False)
    printed = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    decisions = json.loads((folder / "decision.json").read_text(encoding="utf-8"))["decisions"]
    summary = (folder / "summary.md").read_text(encoding="utf-8")
    cards = re.findall(r'<h3 class="headline">(.*?)</h3>', page)
    sentences = [decision["sentence"] for decision in decisions]
    assert len(sentences) == len({record.case.model for record in records})
    assert [html.unescape(card) for card in cards] == sentences
    assert [line for line in printed if line in sentences] == sentences
    assert printed[0] == sentences[0]
    assert words_of(summary).startswith(f"qbench: demo {' '.join(sentences)}")


def test_the_last_lines_name_the_file_to_ship_where_it_still_lies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of what is shipped and the command that makes it a folder; nothing of one that is gone."""
    suite = SuiteInfo(name="demo", text=SUITE)
    folder = run_folder(tmp_path / "run", [fp32(), int8()], info(suite=suite))
    print_files(folder)
    assert capsys.readouterr().out == ""
    file = tmp_path / "model.pt"
    monkeypatch.setattr(
        "qbench.record.artifact_file.find_in_cache", lambda record: file if record.case.mode == "static" else None
    )
    print_files(folder)
    assert capsys.readouterr().out.splitlines() == [
        f"file: {file}",
        f"to deploy it without qbench: qbench ship {folder}",
    ]


def test_a_quick_look_says_so_below_its_answer_and_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then the table, then warnings; what failed stands between."""
    described = info(suite=SuiteInfo(name="demo", text=SUITE), quick=QuickInfo(examples=10, of=100))
    print_answer(run_folder(tmp_path / "run", [fp32(), int8(), failed("net/qat/onednn/t1/b1")], described), wide=False)
    out = capsys.readouterr().out
    assert out.count("coarse timing in one process") == 1
    places = [out.index(words) for words in ("quick look at net: ship", "coarse timing", "\nnet, 1 thread", "signal 9")]
    assert places == sorted(places)


def test_what_depends_on_the_machine_is_said_behind_the_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each setting that was decided on several hosts."""
    there = [
        replace(each, case=replace(each.case, id=f"{each.case.id}/ray:b", host="ray:b"), host=HostFacts(kind="node"))
        for each in (fp32(), int8(latency=latency(0.005), speedup=speedup(0.5, baseline="net/fp32/torch/t1/b1/ray:b")))
    ]
    suite = SuiteInfo(name="demo", text=SUITE)
    print_answer(run_folder(tmp_path / "run", [fp32(), int8(), *there], info(suite=suite)), wide=False)
    out = one_line(capsys.readouterr().out)
    assert "it depends on the machine: ship static int8 on oneDNN (PyTorch) on native, keep fp32 on ray:b." in out
    assert out.count("static int8 on oneDNN (PyTorch)") > 1
