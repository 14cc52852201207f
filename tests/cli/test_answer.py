"""Rules of qbench/cli/answer.py: what ``qbench run`` prints of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_records import accuracy, fp32, info, int8
from made_runs import run_folder

from qbench.cli.answer import print_answer, print_files
from qbench.formatting import one_line
from qbench.record.stored_run import SuiteInfo

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
    assert "Undecided on static int8 on oneDNN (PyTorch), the" in one_line(answer)
    assert "(static int8 on x86 (PyTorch))" in one_line(answer)
    assert "static · onednn" not in answer
    assert "static · onednn" in table


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
