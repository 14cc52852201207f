"""Somebody else's run and suite, opened with every command: their Python runs where the user consents, and only there.

The planted Python leaves a mark when it is imported. The table in ``guide/security.md`` says of each command whether it
may; every command of the command line stands there and in ``COMMANDS`` here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from short_measurements import short_measurements

import qbench
from qbench.cli import main
from qbench.record.jsonl import RECORDS

GUIDE = Path(qbench.__file__).parent / "guide" / "security.md"
CASE = "net/static/fake/t1/b1"
PYTHON = """
import numpy as np
open({mark!r}, "a").write("ran ")

def build():
    import torch
    return torch.nn.Linear(8, 10)

def load(split):
    return np.random.default_rng(len(split)).normal(size=(64, 8)).astype("float32"), np.arange(64) % 10

def score(outputs, labels):
    return (outputs.argmax(1) == labels).astype("float64")
"""
SUITE = """
suite: evil
models: [{name: net, source: {python: "evil.py:build"}}]
data: {dataset: {python: "evil.py:load"}, calibrate: {samples: 32}}
matrix: {modes: [fp32, static, dynamic], backends: [fake]}
measure: {max_seconds: 0.3, precision: 20%, processes: 1, cold_starts: 1}
gate:
  latency: {max_regression: 50%}
  accuracy: {metric: {python: "evil.py:score", percent: true}}
"""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A run, its suite and a baseline as one names them from the folder that one works in, and the mark of the Python
    that they name."""

    run: Path
    suite: Path
    baseline: Path
    mark: Path

    @property
    def ran(self) -> bool:
        """Whether the Python ran since this was last asked."""
        ran = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return ran


# What reads a run only, or takes none.
READING: dict[str, Callable[[Planted], list[str]]] = {
    "report": lambda files: ["report", str(files.run)],
    "report --compare": lambda files: ["report", str(files.run), "--compare", str(files.run), "--wide"],
    "report --plots": lambda files: ["report", str(files.run), "--plots"],
    "report --history": lambda files: ["report", "--history", str(files.run.parent)],
    "compare": lambda files: ["compare", str(files.baseline), str(files.run)],
    "baseline": lambda files: ["baseline", str(files.run), "--allow-failed", "--keep-artifacts", "--out", "kept"],
    "gate --stored": lambda files: ["gate", str(files.run), "--baseline", str(files.baseline), "--stored"],
    "portability": lambda files: ["portability", str(files.run)],
    "export": lambda files: ["export", str(files.run), "--format", "csv"],
    "export pytest-benchmark": lambda files: ["export", str(files.run), "--format", "pytest-benchmark"],
    "ship": lambda files: ["ship", str(files.run), CASE, "--output", "out"],
    "plan": lambda files: ["plan", str(files.suite)],
    "list": lambda files: ["list"],
    "schema": lambda files: ["schema"],
    "clean": lambda files: ["clean", "--dry-run"],
}
# What goes on from a run, and executes what its suite names; then what consents to that.
GOING_ON: dict[str, tuple[Callable[[Planted], list[str]], Callable[[Planted], list[str]]]] = {
    "run --resume": (
        lambda files: ["run", "--resume", str(files.run), "--quiet"],
        lambda files: ["run", str(files.suite), "--resume", str(files.run), "--quiet"],
    ),
    "explain": (
        lambda files: ["explain", str(files.run), CASE, "--max-seconds", "0.1", "--quiet"],
        lambda files: ["explain", str(files.run), CASE, "--max-seconds", "0.1", "--quiet", "--suite", str(files.suite)],
    ),
    "gate": (
        lambda files: ["gate", str(files.run), "--baseline", str(files.baseline), "--trust-baseline-artifacts"],
        lambda files: ["gate", str(files.run), "--baseline", str(files.baseline), "--suite", str(files.suite)],
    ),
    "portability --here": (
        lambda files: ["portability", str(files.run), "--here", "--artifacts", str(files.baseline)],
        lambda files: ["portability", str(files.run), "--here", "--suite", str(files.suite)],
    ),
}
# What runs the suite of a run again in a process of its own, where it was run before.
AGAIN: dict[str, Callable[[Planted], list[str]]] = {
    "replay": lambda files: ["replay", str(files.run)],
    "upgrade": lambda files: ["upgrade", str(files.run), "--to", "onnxruntime==0.0.0"],
}
# Each command of the command line, by the keys above; the rest takes neither a run nor a stored file.
COMMANDS = {
    "run": ("run --resume",),
    "plan": ("plan",),
    "train": (),  # takes a suite, which is named
    "init": (),  # reads a model's file and data, and runs nothing of them
    "check": (),  # takes a model's file, which is named
    "report": ("report", "report --compare", "report --plots", "report --history"),
    "compare": ("compare",),
    "portability": ("portability", "portability --here"),
    "explain": ("explain",),
    "ship": ("ship",),
    "baseline": ("baseline",),
    "gate": ("gate", "gate --stored"),
    "bisect": (),  # takes a suite, which is named
    "upgrade": ("upgrade",),
    "replay": ("replay",),
    "export": ("export", "export pytest-benchmark"),
    "doctor": (),  # what its children import: tests/process/test_inheritance.py
    "list": ("list",),
    "schema": ("schema",),
    "clean": ("clean",),
    "onnx": (),  # its Python files are named, too
}


def call(*words: str) -> int:
    """The exit code of a command; a traceback would be an error of this test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["qbench", *words])
        code = main._run_command()
    return int(code or 0)


@dataclass(frozen=True, kw_only=True)
class Theirs:
    """Somebody's folder with a suite and its stopped run, the list of what they ran, and where their Python marks."""

    folder: Path
    run: Path
    state: Path
    mark: Path


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theirs]:
    """Made once, by `qbench run` as they ran it."""
    folder, state = tmp_path_factory.mktemp("theirs"), tmp_path_factory.mktemp("their-state")
    mark = folder.parent / "mark"
    (folder / "evil.py").write_text(PYTHON.format(mark=str(mark)), encoding="utf-8")
    (folder / "evil.yaml").write_text(SUITE, encoding="utf-8")
    with short_measurements(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        patch.chdir(folder)
        assert call("run", "evil.yaml", "--quiet") == 0
        run = (folder / "reports/evil/latest").resolve()
        assert call("baseline", "evil", "--keep-artifacts") == 0
        baseline = folder / "reports/baselines/evil.jsonl"
        # Another artifact than the run's, here the dynamic one: nothing is run again where both are the same bytes.
        lines = {line["case"]["id"]: line for line in map(json.loads, baseline.read_text().splitlines())}
        lines[CASE]["artifact"] = lines[CASE.replace("static", "dynamic")]["artifact"]
        baseline.write_text("".join(f"{json.dumps(line)}\n" for line in lines.values()))
        records = (run / RECORDS).read_text().splitlines()
        (run / RECORDS).write_text("".join(f"{line}\n" for line in records if "/dynamic/" not in line))
        (folder / "reports/evil/latest").unlink()
        assert mark.exists()
        mark.unlink()
        yield Theirs(folder=folder, run=run, state=state, mark=mark)


def plant(theirs: Theirs, home: Path, suite: str, run: str, works: str) -> Planted:
    """Their suite as ``suite`` and their run as ``run``, both below ``home``, for somebody who works in ``works``."""
    working = home / works
    working.mkdir(parents=True, exist_ok=True)
    file, folder, baseline = home / suite, home / run, home / "baselines/evil.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    for name in ("evil.py", "evil.yaml"):
        shutil.copy(theirs.folder / name, file.parent)
    shutil.copytree(theirs.run, folder, dirs_exist_ok=True)
    shutil.copytree(theirs.folder / "reports/baselines", baseline.parent)
    for described in (folder / "run.json", baseline.with_name("evil.run.json")):
        content = json.loads(described.read_text())
        content["suite"]["file"] = os.path.relpath(file, working)
        described.write_text(json.dumps(content))
    return Planted(run=folder, suite=file, baseline=baseline, mark=theirs.mark)


LAYOUTS = {
    "beside": ("x/evil.yaml", "x/run", "."),
    "two deeper": ("x/evil.yaml", "x/p/q/evil/run", "."),
    "ordinary": ("z/evil.yaml", "z/reports/evil/run", "z"),
    "ordinary, from below": ("z/evil.yaml", "z/reports/evil/run", "z/notes"),
    "in the run": ("z/reports/evil/run/evil.yaml", "z/reports/evil/run", "z"),
}


@pytest.fixture(params=[*LAYOUTS, "by links"])
def planted(request: pytest.FixtureRequest, theirs: Theirs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planted:
    """Their things in every layout, for a user who never ran them, but has the same artifacts in the cache."""
    if request.param == "by links":
        far = plant(theirs, tmp_path / "far", "evil.yaml", "reports/evil/run", ".")
        working = tmp_path / "work"
        (working / "reports/evil").mkdir(parents=True)
        (working / "reports/evil/run").symlink_to(far.run)
        for name in ("evil.yaml", "evil.py"):
            (working / name).symlink_to(far.suite.with_name(name))
        planted = Planted(
            run=working / "reports/evil/run", suite=working / "evil.yaml", baseline=far.baseline, mark=far.mark
        )
    else:
        suite, run, works = LAYOUTS[request.param]
        planted, working = plant(theirs, tmp_path, suite, run, works), tmp_path / works
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(working)
    return planted


def test_what_reads_a_run_imports_nothing_that_it_names(
    planted: Planted, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is asked for: records are data. Pictures are drawn of those alone, and so in one layout for all."""
    if request.node.callspec.params["planted"] != "ordinary":
        for module in ("figures", "saved_plots"):
            monkeypatch.setattr(f"qbench.report.{module}.list_drawings", lambda *given, **named: ())
    codes = {name: call(*words(planted)) for name, words in READING.items()}
    assert not planted.ran
    assert codes.pop("ship") == 2  # files of the backend fake do not run without qbench
    assert set(codes.values()) <= {0, 1, 3, 4}, codes
    assert len(qbench.load(planted.run)) == 2
    assert not planted.ran


@pytest.mark.parametrize("name", GOING_ON)
def test_what_goes_on_from_a_run_imports_nothing_without_consent(
    planted: Planted, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever the two lie; the message says what it would run, and how to consent."""
    code = call(*GOING_ON[name][0](planted))
    assert not planted.ran
    said = " ".join("".join(capsys.readouterr()).split())
    assert "names what you never ran here, or not as it is now" in said, said
    assert "name the suite: --suite " in said or "name the suite: `qbench run " in said
    assert code == 2 or name == "gate"


@pytest.mark.parametrize("name", AGAIN)
def test_what_runs_a_suite_again_imports_nothing_of_a_run_from_elsewhere(
    planted: Planted, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It ends with one message, before pip is asked for anything."""
    assert call(*AGAIN[name](planted)) == 2
    assert not planted.ran
    assert "error: " in "".join(capfd.readouterr())


@pytest.mark.parametrize("name", GOING_ON)
def test_the_suite_that_one_names_is_consent(
    theirs: Theirs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The trap works: without this, the tests above would prove nothing."""
    planted = plant(theirs, tmp_path, *LAYOUTS["two deeper"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    call(*GOING_ON[name][1](planted))
    assert planted.ran


@pytest.mark.parametrize("below", [".", "reports/evil", "../elsewhere"])
@pytest.mark.parametrize("name", GOING_ON)
def test_one_s_own_run_needs_no_option(
    theirs: Theirs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, below: str
) -> None:
    """Who ran the suite goes on from its run, explains and gates it, from whatever folder."""
    shutil.copytree(theirs.run, tmp_path / "run")
    monkeypatch.setenv("XDG_STATE_HOME", str(theirs.state))
    (theirs.folder / below).mkdir(exist_ok=True)
    monkeypatch.chdir(theirs.folder / below)
    own = Planted(
        run=theirs.run,
        suite=theirs.folder / "evil.yaml",
        baseline=theirs.folder / "reports/baselines/evil.jsonl",
        mark=theirs.mark,
    )
    try:
        code = call(*GOING_ON[name][0](own))
    finally:
        shutil.rmtree(theirs.run)
        shutil.copytree(tmp_path / "run", theirs.run)
    assert own.ran
    assert code == 0 or name == "gate"


def test_every_command_stands_in_the_table() -> None:
    """What a command may run is written down in the guide, and walked through here."""
    registered = {command.name or command.callback.__name__ for command in main.app.registered_commands}
    registered |= {group.typer_instance.info.name for group in main.app.registered_groups}
    assert set(COMMANDS) == registered
    assert sorted(key for keys in COMMANDS.values() for key in keys) == sorted({*READING, *GOING_ON, *AGAIN})
    rows = re.findall(r"^\| (`[^|]*`[^|]*)\|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    named = {word for row in rows for code in re.findall(r"`([^`]*)`", row) for word in [code.split()[0]]}
    assert set(COMMANDS) <= named
