"""What the shell offers behind a command, and the list of commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbench.cli import completion

HEAVY = ("torch", "numpy", "onnx", "onnxruntime", "pandas")


@pytest.fixture(name="folder")
def folder_(tmp_path: Path) -> Path:
    """A working folder with two suites, two runs of one, a folder that is no run, and a baseline."""
    for file in ("suites/a.yaml", "suites/deep/b.yml", "mine.yaml", "notes.txt", "suites/schema.json"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    for run in ("mine/2026-1", "mine/2026-2", "baselines/2026-3"):
        (tmp_path / "reports" / run).mkdir(parents=True)
        (tmp_path / "reports" / run / "run.json").touch()
    (tmp_path / "reports" / "mine" / "unfinished").mkdir()
    (tmp_path / "reports" / "mine" / "latest").symlink_to("2026-2")
    return tmp_path


def complete(folder: Path, words: str) -> list[str]:
    """What bash is offered for the last word of a line."""
    split = words.split(" ")
    asked = {"_QBENCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(split) - 1)}
    code = (
        "import sys; sys.argv[:] = ['qbench']; from qbench.cli import main\n"
        "try: main.main()\n"
        f"finally: print(*(name for name in {HEAVY} if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env={**os.environ, **asked}, capture_output=True, text=True
    )
    assert done.stderr.strip() == ""  # no heavy library was imported
    return done.stdout.split()


def test_suites_and_runs_are_offered_by_the_names_of_files(folder: Path) -> None:
    """Suites below suites/ and those beside what was typed; runs by suite and by folder, newest first."""
    assert complete(folder, "qbench plan suites/") == ["suites/a.yaml", "suites/deep/b.yml", "suites/deep/"]
    assert complete(folder, "qbench run m") == ["mine.yaml"]
    runs = ["reports/mine/2026-2", "reports/mine/2026-1"]
    assert complete(folder, "qbench report ") == ["mine", *runs]
    assert complete(folder, "qbench compare mine reports/") == runs
    assert complete(folder, "qbench gate x") == []


@pytest.mark.parametrize("words", [[], ["onnx"]])
def test_the_list_of_commands_fits_80_columns(words: list[str]) -> None:
    """Each command is told in one whole line: none ends in three dots."""
    command = [sys.executable, "-m", "qbench", *words, "--help"]
    done = subprocess.run(command, env={**os.environ, "COLUMNS": "80"}, capture_output=True, text=True, check=True)
    lines = done.stdout.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert len(lines) == (6 if words else 21)
    assert all(len(line) <= 79 and not line.endswith("...") and line[2] != " " for line in lines)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", ["suites/a.yaml", "suites/deep/b.yml", "inner/", "mine.yaml", "reports/", "suites/"]),
        ("mi", ["mine.yaml"]),
        ("suites/d", ["suites/deep/b.yml", "suites/deep/"]),
        ("./m", ["./mine.yaml"]),
        ("inner/", ["inner/c.yaml"]),
        (".", [".git/", ".hidden.yaml"]),
        ("inner/.", ["inner/.d.yml"]),
        ("gone/", []),
        ("notes", []),
    ],
)
def test_what_is_offered_for_a_suite(
    folder: Path, monkeypatch: pytest.MonkeyPatch, typed: str, offered: list[str]
) -> None:
    """Those below suites/, then what lies beside what was typed, each once; what is hidden where a dot is typed."""
    for file in (".hidden.yaml", ".git/e.yaml", "inner/c.yaml", "inner/.d.yml", "inner/f.txt"):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).touch()
    monkeypatch.chdir(folder)
    assert completion.complete_suite(typed) == offered


def test_a_path_from_the_root_is_offered_as_one(folder: Path) -> None:
    """Wherever the shell works."""
    assert completion.complete_suite(f"{folder}/m") == [f"{folder}/mine.yaml"]
    assert f"/{folder.parts[1]}/" in completion.complete_suite(f"/{folder.parts[1]}")


def test_where_there_are_no_runs_none_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a suite whose runs are gone."""
    monkeypatch.chdir(tmp_path)
    assert completion.complete_run("") == []
    (tmp_path / "reports" / "mine" / "2026-1").mkdir(parents=True)
    assert completion.complete_run("") == []
