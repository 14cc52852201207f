"""Rules of qbench/gating/suite_program.py: a run in a process of its own, under an environment's libraries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from qbench.environments.environment import Environment, find_present
from qbench.errors import UsageError
from qbench.gating.suite_program import run_suite


def program(folder: Path, text: str) -> Environment:
    """An environment whose Python is this shell script."""
    python = folder / "python"
    python.write_text(f"#!/bin/sh\n{text}\n")
    python.chmod(0o755)
    return Environment(digest="0" * 64, folder=folder / "packages", python=python)


def run(folder: Path, text: str, **options: object) -> Path:
    """What a run by that script gives."""
    return run_suite("s.yaml", ["--filter", "*"], name="a side", out=folder, settings=["a=1"],
                     environment=program(folder, text), **options)  # type: ignore[arg-type]  # fmt: skip


def test_the_folder_of_the_run_is_read_from_what_it_prints(tmp_path: Path) -> None:
    """It hears the words, the settings, where to look for packages and what else it is told."""
    text = f'echo "$@ $PYTHONPATH $MORE" > {tmp_path}/heard; echo \'{{"folder": "/a/run"}}\'; exit 1'
    assert run(tmp_path, text, variables={"MORE": "more"}, quiet=True) == Path("/a/run")
    heard = (tmp_path / "heard").read_text()
    assert heard.startswith(
        f"-m qbench run s.yaml --out {tmp_path} --filter * --set a=1 --json --quiet {tmp_path}/packages"
    )
    assert heard.strip().endswith(" more")
    run(tmp_path, text)
    assert "--quiet" not in (tmp_path / "heard").read_text()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="there are no process groups here")
def test_it_ends_with_one_that_is_killed(tmp_path: Path) -> None:
    """Whoever started it has no time to ask for that: what is left holds standard error open."""
    program(tmp_path, "echo started >&2; exec tail -f /dev/null")
    code = (
        "from pathlib import Path\n"
        "from qbench.environments.environment import Environment\n"
        "from qbench.gating.suite_program import run_suite\n"
        f"here = Path({str(tmp_path)!r})\n"
        "environment = Environment(digest='', folder=here, python=here / 'python')\n"
        "run_suite('s.yaml', [], name='', out=here, settings=[], environment=environment)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as starter:
        assert starter.stderr is not None
        assert starter.stderr.readline() == b"started\n"
        starter.kill()
        assert starter.communicate(timeout=60)[1] == b""


@pytest.mark.parametrize("code", [129, 130, 143])
def test_one_that_a_signal_ended_interrupts(tmp_path: Path, code: int) -> None:
    """By the exit code, as a shell says it."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, f"exit {code}")


def test_a_suite_that_cannot_be_run_names_the_command(tmp_path: Path) -> None:
    """And the side that it was for."""
    with pytest.raises(
        UsageError, match=r"a side: its suite could not be run \(see above\); command: .*python -m qbench"
    ):
        run(tmp_path, "exit 2")


def test_a_folder_that_is_somebody_elses_adds_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A qbench that lies where one works is not the one that runs, unless it is a commit's own folder."""
    (tmp_path / "qbench").mkdir()
    (tmp_path / "qbench/__init__.py").touch()
    (tmp_path / "qbench/__main__.py").write_text('print(\'{"folder": "/taken"}\')\n')
    monkeypatch.delenv("PYTHONPATH", raising=False)
    options: dict[str, Any] = {"name": "a side", "out": tmp_path, "settings": [], "environment": find_present()}
    assert run_suite("none.yaml", [], folder=tmp_path, **options) == Path("/taken")
    with pytest.raises(UsageError, match="a side: its suite could not be run"):
        run_suite("none.yaml", [], folder=tmp_path, from_here=False, **options)
