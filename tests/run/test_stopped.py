"""Rules of run/stopped: a run's folder is enough to go on with it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from made_records import info

from qbench.errors import UsageError
from qbench.record.stored_run import QuickInfo, SuiteInfo
from qbench.run.stopped import read_stopped
from qbench.suite.quick import OVERRIDES

TEXT = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"


def stopped_run(folder: Path, file: Path, *, quick: bool = False, only: str | None = None) -> Path:
    """A run's folder whose suite was read from a file with one override."""
    overrides = (*(OVERRIDES if quick else ()), "measure.seed=3")
    told = SuiteInfo(name="s", file=str(file), text=TEXT, overrides=overrides)
    described = replace(info(), suite=told, quick=QuickInfo() if quick else None, filter=only)
    (folder / "run.json").write_text(json.dumps(asdict(described)), encoding="utf-8")
    return folder


@pytest.mark.parametrize("quick", [False, True])
def test_the_folder_knows_its_suite_overrides_and_filter(tmp_path: Path, quick: bool) -> None:
    """`--resume DIR` alone asks for what the run was started with, and for what is given on top."""
    file = tmp_path / "s.yaml"
    file.write_text(TEXT, encoding="utf-8")
    folder = stopped_run(tmp_path, file, quick=quick, only="*/static/*")
    asked = read_stopped(folder)
    assert (asked.suite.text, asked.suite.quick, asked.only) == (TEXT, quick, "*/static/*")
    assert asked.suite.overrides == (*(OVERRIDES if quick else ()), "measure.seed=3")
    assert read_stopped(folder, ["measure.calls=7"]).suite.measure.calls == 7


def test_a_suite_that_is_gone_is_asked_for(tmp_path: Path) -> None:
    """Never is the text run that a folder brings along: a suite can name code."""
    folder = stopped_run(tmp_path, tmp_path / "gone.yaml")
    with pytest.raises(UsageError, match=r"its suite, .*gone\.yaml, is not there.*qbench run SUITE --resume"):
        read_stopped(folder)
