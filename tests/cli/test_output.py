"""Rules of qbench/cli/output.py: which run a name means, and what is said where a suite is named in its place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from made_records import RUN_V1

from qbench.cli import gate
from qbench.cli.output import find_folder
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
