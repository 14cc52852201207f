"""Rules of qbench/cli/answer.py: what ``qbench run`` prints of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_records import accuracy, fp32, int8
from made_runs import run_folder

from qbench.cli.answer import print_answer
from qbench.formatting import one_line


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
