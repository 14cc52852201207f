"""Rules of qbench/cli/output.py: which run a name means, and what is said where a suite is named in its place."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from made_records import RUN_V1

from qbench.cli import gate, output
from qbench.cli.output import find_folder, terminal_width
from qbench.errors import UsageError

TEXT = "suite: quickstart\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"


def test_a_suite_in_place_of_a_run_is_told_what_to_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that makes a run where there is none, else the suite's name and its latest run."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(TEXT)
    with pytest.raises(UsageError, match=r"mine\.yaml is a suite.*make one with `qbench run mine\.yaml`$"):
        find_folder("mine.yaml")
    shutil.copytree(RUN_V1, "reports/quickstart/2026")
    with pytest.raises(UsageError, match=r"'quickstart' names its latest one, .*reports/quickstart/2026$"):
        find_folder("mine.yaml")
    with pytest.raises(UsageError, match=r"latest one, .*2026; or --against REF, which builds the suite at both"):
        gate._gate_run("mine.yaml", None, None, None, None)
    with pytest.raises(UsageError, match=r"gone\.yaml: no run is there"):
        find_folder("gone.yaml")


def test_only_a_terminal_has_a_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes to a file or a pipe is not cut."""
    monkeypatch.setenv("COLUMNS", "61")
    for is_terminal, width in ((True, 61), (False, None)):
        monkeypatch.setattr(sys.stdout, "isatty", lambda is_terminal=is_terminal: is_terminal)
        assert terminal_width() == width


@pytest.mark.parametrize("full", [False, True])
def test_which_run_is_meant_is_said_beside_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, full: bool
) -> None:
    """Where it is not the latest; a file in the place of a suite's name is asked the same."""
    asked: list[bool] = []

    def find_run(name: str, *, full: bool = False, tell: Callable[[str], None] | None = None) -> Path:
        asked.append(full)
        if tell is not None:
            tell("its latest run has no case that is ok")
        return Path("run")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "find_run", find_run)
    assert find_folder("demo", full=full) == Path("run")
    assert capsys.readouterr() == ("", "note: its latest run has no case that is ok\n")
    Path("mine.yml").write_text(TEXT)
    with pytest.raises(UsageError, match=r"mine\.yml is a suite.*latest one, run$"):
        find_folder("mine.yml", full=full)
    assert asked == [full, full]
