"""The workflows that a reader copies: they parse, give a fork nothing, and their shell lines do what they say."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from qbench.cli import main
from qbench.gate.markdown import marker

EXAMPLES = Path(__file__).parent.parent / ".github" / "examples"
GATE, COMMENT, GITLAB = (EXAMPLES / name for name in ("qbench-gate.yml", "qbench-comment.yml", "gitlab-ci.yml"))


def read(file: Path) -> dict[Any, Any]:
    """The workflow; YAML 1.1 reads the key ``on`` as true."""
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def scripts(file: Path) -> list[str]:
    """The shell lines of each step."""
    content = read(file)
    if file == GITLAB:
        return list(content["qbench gate"]["script"])
    return [step["run"] for job in content["jobs"].values() for step in job["steps"] if "run" in step]


SCRIPTS = [(file, script) for file in (GATE, COMMENT, GITLAB) for script in scripts(file)]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a script as the runner does; commands that it names are stubs that write down how they were called."""
    (tmp_path / "bin").mkdir()
    for name in ("pip", "qbench", "gh", "git"):
        stub = tmp_path / "bin" / name
        stub.write_text(
            f'#!/bin/bash\necho "{name} $*" >> "$CALLS"\n[ ! -f "$ANSWERS/{name}" ] || . "$ANSWERS/{name}"\n'
        )
        stub.chmod(0o755)
    monkeypatch.chdir(tmp_path)

    def run(script: str, answers: dict[str, str] | None = None, **variables: str) -> tuple[int, str, str]:
        calls = tmp_path / "calls"
        calls.write_text("")
        for name, text in (answers or {}).items():
            (tmp_path / name).write_text(text)
        environment = {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "CALLS": str(calls),
            "ANSWERS": str(tmp_path),
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            env=environment | variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, calls.read_text(), done.stdout + done.stderr

    return run


@pytest.mark.parametrize(("file", "script"), SCRIPTS, ids=lambda value: getattr(value, "name", "script"))
def test_the_shell_lines_parse_and_take_no_value_of_a_stranger(file: Path, script: str) -> None:
    """Names of branches and titles reach a script as variables, never as a part of its text."""
    done = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "${{" not in script


def test_the_job_that_runs_a_pull_request_has_no_rights() -> None:
    """It reads, it has no secret, and it is not run with the rights of the base."""
    content = read(GATE)
    assert content[True] == "pull_request"
    assert content["permissions"] == {"contents": "read"}
    text = "".join(line for line in GATE.read_text().splitlines() if not line.startswith("#"))
    assert "secrets." not in text
    assert "pull_request_target" not in text
    for step in content["jobs"]["gate"]["steps"]:
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_the_job_with_rights_runs_nothing_of_a_pull_request() -> None:
    """It checks nothing out, and starts after the other by its name."""
    content = read(COMMENT)
    assert content[True]["workflow_run"]["workflows"] == [read(GATE)["name"]]
    assert content["permissions"] == {"actions": "read", "pull-requests": "write"}
    assert not [step for step in content["jobs"]["comment"]["steps"] if "uses" in step]


@pytest.mark.parametrize("file", [GATE, GITLAB], ids=lambda file: file.name)
def test_the_gate_is_called_as_it_can_be(file: Path, shell: Any) -> None:
    """Each option exists, the suite and the base arrive, and the gate's exit code is the job's."""
    (script,) = (script for script in scripts(file) if "qbench gate" in script)
    for code in (0, 1, 3, 4):
        found, calls, _ = shell(
            script, {"qbench": f"exit {code}"}, SUITE="suites/ci.yaml", BASE="abc", CI_MERGE_REQUEST_DIFF_BASE_SHA="abc"
        )
        assert found == code
    assert calls.startswith("qbench gate suites/ci.yaml --against abc ")
    (command,) = (command for command in main.app.registered_commands if command.callback.__name__ == "gate")
    options = re.findall(r"--([a-z-]+)", calls)
    known = set(command.callback.__annotations__)
    assert {option.replace("-", "_") for option in options} <= known


COMMENT_SCRIPT = scripts(COMMENT)[-1]
WHO = {"REPOSITORY": "me/it", "HEAD": "you:branch", "SHA": "abc", "RUN": "1"}
API = """
case "$*" in
  *pulls*) echo {number} ;;
  *"GET"*|*--paginate*) [ -z "{old}" ] || echo {old} ;;
esac
"""


@pytest.mark.parametrize(
    ("old", "verb"),
    [("", "POST repos/me/it/issues/7/comments"), ("55", "PATCH repos/me/it/issues/comments/55")],
)
def test_the_comment_is_written_or_replaced(shell: Any, tmp_path: Path, old: str, verb: str) -> None:
    """The first time it is new; then the one that begins with qbench's marker is written over. Nobody is mentioned."""
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate/gate.md").write_text(f"{marker('ci')}\n**qbench gate: PASS** @everyone {'x' * 70_000}\n")
    code, calls, told = shell(COMMENT_SCRIPT, {"gh": API.format(number=7, old=old)}, **WHO)
    assert code == 0, told
    assert f"gh api --method {verb} -F body=@comment.md" in calls
    comment = (tmp_path / "comment.md").read_text()
    assert "@<!-- -->everyone" in comment
    assert len(comment) <= 65_000


def test_a_comment_that_is_not_qbenchs_is_not_written(shell: Any, tmp_path: Path) -> None:
    """A pull request's code may have put anything in its place."""
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate/gate.md").write_text("# another text\n")
    code, calls, _ = shell(COMMENT_SCRIPT, {"gh": API.format(number=7, old="")}, **WHO)
    assert code == 1
    assert "POST" not in calls


def test_a_pull_request_that_moved_on_gets_no_comment(shell: Any) -> None:
    """The result is of an older commit."""
    code, calls, _ = shell(COMMENT_SCRIPT, {"gh": ""}, **WHO)
    assert code == 0
    assert "POST" not in calls
    assert "PATCH" not in calls
