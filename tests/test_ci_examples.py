"""This repository's workflow, and those that a reader copies: they are valid, give a fork nothing, and their shell
lines do what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from qbench.cli import main
from qbench.gating.markdown import marker

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / ".github" / "examples"
NAMES = ("qbench-gate.yml", "qbench-comment.yml", "gitlab-ci.yml", "qbench-upgrade.yml")
GATE, COMMENT, GITLAB, UPGRADE = (EXAMPLES / name for name in NAMES)
CI = ROOT / ".github" / "workflows" / "ci.yml"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# The first major version of each action that runs on Node 24; GitHub's runners have no older one.
ON_NODE_24 = {"actions/checkout": 5, "actions/setup-python": 6, "actions/cache": 5, "actions/upload-artifact": 6}


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


SCRIPTS = [(file, script) for file in (CI, GATE, COMMENT, GITLAB, UPGRADE) for script in scripts(file)]


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


def lint(*command: str | Path) -> None:
    """Runs a linter of this environment, which opens no connection."""
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_file_has_the_form_that_its_service_takes() -> None:
    """By the schemas of GitHub and GitLab, which the linter brings along."""
    lint("check-jsonschema", "--builtin-schema", "vendor.github-workflows", CI, GATE, COMMENT, UPGRADE)
    lint("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", GITLAB)


def test_no_workflow_has_a_known_weakness() -> None:
    """Expressions in scripts, rights, kept credentials, caches, actions of strangers; the rules: .github/zizmor.yml."""
    lint("zizmor", "--offline", "--no-progress", "--quiet", CI, GATE, COMMENT, UPGRADE)


@pytest.mark.parametrize("file", [CI, GATE, COMMENT, GITLAB, UPGRADE], ids=lambda file: file.name)
def test_the_shell_lines_have_no_known_mistake(file: Path, tmp_path: Path) -> None:
    """As bash, with what the runner puts before them."""
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env bash\nset -eo pipefail\n" + "\n".join(scripts(file)))
    lint("shellcheck", script)


def test_what_ci_runs_has_no_known_mistake() -> None:
    """The script that everybody can run, too."""
    lint("shellcheck", ROOT / ".ci/run")


def test_the_repository_runs_all_of_its_checks() -> None:
    """Each pull request and main, with each Python that the project names, by the script that anybody can run."""
    content = read(CI)
    (job,) = content["jobs"].values()
    assert content[True] == {"pull_request": None, "push": {"branches": ["main"]}}
    assert content["permissions"] == {"contents": "read"}
    assert ".ci/run" in scripts(CI)
    assert job["strategy"]["matrix"]["python"] == pythons()


def pythons() -> list[str]:
    """The versions that the project's classifiers name."""
    matches = (re.fullmatch(r"Programming Language :: Python :: (\d+\.\d+)", line) for line in PROJECT["classifiers"])
    return [match[1] for match in matches if match]


def test_the_examples_take_a_python_that_is_tested() -> None:
    """GitHub by its action, GitLab by the image."""
    (step,) = (step for step in read(GATE)["jobs"]["gate"]["steps"] if "setup-python" in step.get("uses", ""))
    assert step["with"] == {"python-version": pythons()[-1]}
    assert read(GITLAB)["qbench gate"]["image"] == f"python:{pythons()[-1]}"


@pytest.mark.parametrize("file", [CI, GATE, UPGRADE], ids=lambda file: file.name)
def test_the_actions_run_on_the_node_that_runners_have(file: Path) -> None:
    """Node 20 is gone from GitHub's runners."""
    used = [step["uses"] for job in read(file)["jobs"].values() for step in job["steps"] if "uses" in step]
    versions = [(action, int(version.removeprefix("v"))) for action, _, version in (use.partition("@") for use in used)]
    assert [use for use in versions if use[1] < ON_NODE_24[use[0]]] == []


@pytest.mark.parametrize("file", [CI, GATE, GITLAB, UPGRADE], ids=lambda file: file.name)
def test_torch_comes_without_cuda(file: Path) -> None:
    """Wherever pip is called, also by the gate, from the index that a variable of the repository names: its version
    with +cpu is newer than that without."""
    content = read(file)
    variables = content["qbench gate"]["variables"] if file == GITLAB else content["env"]
    assert variables["PIP_EXTRA_INDEX_URL"] in ("${{ vars.TORCH_CPU_INDEX }}", "$TORCH_CPU_INDEX")


@pytest.mark.parametrize("file", [GATE, GITLAB, UPGRADE], ids=lambda file: file.name)
def test_qbench_is_installed_from_its_repository(file: Path, shell: Any) -> None:
    """At a commit that the reader puts in, and under the distribution's name."""
    content = read(file)
    variables = content["qbench gate"]["variables"] if file == GITLAB else content["env"]
    assert re.fullmatch(rf"{PROJECT['name']}\[cpu\] @ git\+https://github.com/OWNER/qbench@COMMIT", variables["QBENCH"])
    (script,) = (script for script in scripts(file) if "pip install" in script)
    assert shell(script, QBENCH=variables["QBENCH"])[1] == f"pip install --quiet {variables['QBENCH']}\n"


def test_the_job_that_runs_a_pull_request_has_no_rights() -> None:
    """It reads, it has no secret, and it is not run with the rights of the base."""
    content = read(GATE)
    assert content[True] == {"pull_request": None, "push": {"branches": ["main"]}}
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
    (script,) = (script for script in scripts(file) if script.startswith("qbench gate"))
    for code in (0, 1, 3, 4):
        exit_code, calls, _ = shell(
            script, {"qbench": f"exit {code}"}, SUITE="suites/ci.yaml", BASE="abc", CI_MERGE_REQUEST_DIFF_BASE_SHA="abc"
        )
        assert exit_code == code
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


def find_step(name: str) -> str:
    """The shell lines of a step of the weekly check."""
    return str(next(step["run"] for step in read(UPGRADE)["jobs"]["upgrade"]["steps"] if step.get("name") == name))


VERSIONS = {"pip": 'case "$1" in index) echo "onnxruntime (1.33.0)";; show) echo "Version: $HERE";; esac\n'}


def test_the_newest_release_is_looked_at_unless_it_is_here(shell: Any, tmp_path: Path) -> None:
    """What qbench says of it is handed on as its exit code, whatever that is."""
    variables = {"PACKAGE": "onnxruntime", "SUITE": "s.yaml", "GITHUB_OUTPUT": str(tmp_path / "output")}
    code, calls, said = shell(find_step("look"), VERSIONS | {"qbench": "exit 4\n"}, HERE="1.32.0", **variables)
    assert code == 0
    assert "qbench upgrade s.yaml --to onnxruntime==1.33.0 --max-minutes 20 --markdown upgrade.md" in calls
    assert (tmp_path / "output").read_text() == "code=4\n"
    code, calls, said = shell(find_step("look"), VERSIONS, HERE="1.33.0", **variables)
    assert (code, said) == (0, "onnxruntime 1.33.0 is here\n")
    assert "qbench" not in calls


@pytest.mark.parametrize(
    ("code", "open_issue", "expected"),
    [
        ("1", "", "gh issue create --title qbench: is onnxruntime safe to upgrade? --repo o/r --body-file upgrade.md"),
        ("4", "7", "gh issue edit 7 --repo o/r --body-file upgrade.md"),
        ("0", "7", "gh issue close 7 --repo o/r --comment It is now."),
        ("0", "", None),
    ],
)
def test_one_issue_is_written_over_and_closed(shell: Any, code: str, open_issue: str, expected: str | None) -> None:
    """Where nothing is open and all is well, nothing is written."""
    listed = {"gh": f'[ "$1" != api ] || echo "{open_issue}"\n'}
    ended, calls, _ = shell(find_step("tell"), listed, PACKAGE="onnxruntime", REPOSITORY="o/r", ENDED=code)
    assert ended == 0
    assert [line for line in calls.splitlines() if line.startswith("gh issue")] == ([expected] if expected else [])


def test_a_check_that_could_not_be_made_fails_the_job(shell: Any) -> None:
    """And no issue says that the release is not safe."""
    ended, calls, _ = shell(find_step("tell"), PACKAGE="onnxruntime", REPOSITORY="o/r", ENDED="2")
    assert ended == 2
    assert "gh issue" not in calls
