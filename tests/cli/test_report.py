"""Rules of qbench/cli/report.py: what is built again, and what is printed and saved beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_records import fp32, int8
from made_runs import run_folder

from qbench.cli.report import report
from qbench.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of two cases."""
    return run_folder(tmp_path / "run", [fp32(), int8()])


@pytest.mark.parametrize("plots", [None, True])
def test_pictures_are_saved_only_where_they_are_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str], plots: bool | None
) -> None:
    """The page is written either way, and its place is all that is printed."""
    report(f"{folder}", **({} if plots is None else {"plots": plots}))
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert (folder / "report.html").is_file()
    assert (folder / "plots").is_dir() is (plots is True)


def test_the_whole_table_is_printed_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Above the place of the page."""
    report(f"{folder}", wide=True)
    *answer, place = capsys.readouterr().out.splitlines()
    assert place == f"{folder / 'report.html'}"
    assert any("net, 1 thread" in line for line in answer)


def test_a_run_or_a_history_is_asked_for(folder: Path) -> None:
    """One of them, not both."""
    with pytest.raises(UsageError, match="qbench report: name a run, or --history reports/<suite>"):
        report()
    with pytest.raises(UsageError, match="is about all runs of a suite; leave out run"):
        report("run", history=f"{folder}")
