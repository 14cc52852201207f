"""Rules of run/stopped: a run's folder is enough to go on with it."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from made_records import info

from qbench import consent
from qbench import suite as suites
from qbench.errors import UsageError
from qbench.record.stored_run import QuickInfo, SuiteInfo
from qbench.running.stopped import read_stopped
from qbench.suite.quick import OVERRIDES

TEXT = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that one works in, as the suite's."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stopped_run(home: Path, file: Path, *own: str, quick: bool = False, only: str | None = None) -> Path:
    """A run's folder below ``home`` whose suite was read from a file with one override, and more."""
    folder = home / "reports" / "s" / "1"
    folder.mkdir(parents=True)
    overrides = (*(OVERRIDES if quick else ()), "measure.seed=3", *own)
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


def test_a_suite_of_built_ins_needs_no_consent(tmp_path: Path) -> None:
    """Whoever made the run, and wherever its suite lies: what runs is qbench's own code."""
    archive = tmp_path / "unpacked"
    archive.mkdir()
    (archive / "s.yaml").write_text(TEXT, encoding="utf-8")
    assert read_stopped(stopped_run(archive, Path("s.yaml"))).suite.base == archive


CODE = "def build(): ...\ndef examples(split): ...\ndef score(a, b): ...\n"


@pytest.mark.parametrize("consented", [False, True])
@pytest.mark.parametrize(
    "own",
    [
        "data.dataset={python: 'evil.py:examples'}",
        "models=[{name: digits-cnn, source: {python: 'evil.py:build'}}]",
        "gate.accuracy={metric: {python: 'evil.py:score', percent: true}}",
    ],
)
def test_code_that_was_not_run_here_is_run_only_by_name(tmp_path: Path, own: str, consented: bool) -> None:
    """The suite and the folder's overrides may be anybody's; the message has the command with which one consents.
    What one ran goes on by its folder alone, also from elsewhere."""
    file = tmp_path / "s.yaml"
    file.write_text(TEXT, encoding="utf-8")
    (tmp_path / "evil.py").write_text(CODE, encoding="utf-8")
    folder = stopped_run(tmp_path, file, own)
    if consented:
        assert consent.note_suite(suites.read(file, ["measure.seed=3", own])) is None
        assert read_stopped(folder).suite.overrides[-1] == own
        return
    command = f"qbench run {file} --set measure.seed=3 --set {shlex.quote(own)} --resume {folder}"
    with pytest.raises(UsageError, match=r"names what you never ran here.*evil\.py") as error:
        read_stopped(folder)
    assert command in str(error.value)


def test_overrides_that_lead_to_no_code_are_taken(tmp_path: Path) -> None:
    """They are data like the rest of run.json."""
    file = tmp_path / "s.yaml"
    file.write_text(TEXT, encoding="utf-8")
    folder = stopped_run(tmp_path, file, "data.calibrate.samples=7")
    assert read_stopped(folder).suite.data.calibrate.samples == 7
