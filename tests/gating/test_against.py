"""Rules of qbench/gating/against.py and what it stands on: both commits built from their own folders, nothing left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qbench.errors import NotComparable, UsageError
from qbench.gating import against
from qbench.gating.against import Request, Side, build_side, gate_against
from qbench.gating.gate import Gated
from qbench.gating.rerun import Rerunner
from qbench.gating.worktrees import find_repository
from qbench.progress.live import Silent

SUITE = """\
suite: small
models: [{name: net, source: {python: "network.py:perceptron"}}]
data: {dataset: {npz: data.npz}, calibrate: {samples: 16}}
matrix: {modes: [fp32, static], backends: [fake]}
measure: {cold_starts: 1, processes: 1, max_seconds: 0.1}
gate:
  size: {max_ratio: 0.5}
  accuracy: {margin: 50.0}
"""
NETWORK = """\
from torch import nn

def perceptron():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""


class Notes(Silent):
    """Progress that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def git(folder: Path, *words: str) -> str:
    """What git says."""
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def commit(folder: Path, message: str) -> str:
    """A commit of all that is there; its sha."""
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD").strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a suite in a folder below its top, two commits, the first called ``before``."""
    top = tmp_path / "repository"
    (top / "ml").mkdir(parents=True)
    git(top.parent, "init", "-q", "-b", "main", str(top))
    rng = np.random.default_rng(0)
    arrays = {"train_inputs": rng.random((32, 1, 8, 8), dtype=np.float32), "train_labels": np.arange(32) % 10}
    arrays |= {"test_inputs": rng.random((20, 1, 8, 8), dtype=np.float32), "test_labels": np.arange(20) % 10}
    np.savez(top / "ml/data.npz", **arrays)
    (top / "ml/network.py").write_text(NETWORK)
    (top / "ml/small.yaml").write_text(SUITE)
    (top / "requirements.txt").write_text("numpy\n")
    (top / ".gitignore").write_text("reports/\n")
    commit(top, "a suite")
    git(top, "tag", "before")
    (top / "ml/network.py").write_text(f"# a comment\n{NETWORK}")
    commit(top, "a comment")
    monkeypatch.chdir(top)
    return top


def worktrees(top: Path) -> int:
    """How many folders the repository is checked out in."""
    return git(top, "worktree", "list").count("\n")


def test_a_harmless_commit_passes_and_leaves_nothing(repository: Path) -> None:
    """Both sides are built from what is committed, uncommitted files are named and not judged, places are those of the
    suite where it was called, and no worktree stays."""
    (repository / "ml/network.py").write_text("raise SystemError('not committed')\n")
    progress = Notes()
    gated = gate_against(Request(suite=Path("ml/small.yaml"), ref="before", quiet=True), Rerunner(progress=progress))
    assert gated.exit_code == 0, [verdict.reason for verdict in gated.verdicts]
    assert gated.baseline is not None
    assert gated.baseline.name.startswith("before@")
    assert {verdict.place.partition(":")[0] for verdict in gated.verdicts} == {"ml/small.yaml"}
    assert gated.folder.parent.parent == repository / "reports"
    assert progress.notes[0] == "not judged, since not committed: ml/network.py"
    assert worktrees(repository) == 1
    assert not list(Path(git(repository, "rev-parse", "--git-common-dir").strip()).glob("worktrees/*"))


def test_the_worktrees_go_after_an_error_too(repository: Path) -> None:
    """Also where building is interrupted: then nothing is judged."""
    built: list[Side] = []

    def interrupt(side: Side, request: Request) -> Path:
        assert (side.tree / "ml/network.py").read_text() == NETWORK
        built.append(side)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gate_against(Request(suite=Path("ml/small.yaml"), ref="before"), Rerunner(progress=Silent()), build=interrupt)
    assert [side.name for side in built] == ["before"]
    assert not built[0].tree.exists()
    assert worktrees(repository) == 1


@pytest.mark.parametrize("code", [129, 130, 143])
def test_a_run_that_a_signal_ended_interrupts_the_gate(code: int, repository: Path, tmp_path: Path) -> None:
    """By the exit code of the process that makes it, as a shell says it; an error of the suite has another one."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {code}\n")
    python.chmod(0o755)
    side = Side(name="before", tree=repository, suite=repository / "ml/small.yaml", out=tmp_path, python=python)
    with pytest.raises(KeyboardInterrupt):
        build_side(side, Request(suite=Path("ml/small.yaml"), ref="before"))
    python.write_text("#!/bin/sh\nexit 2\n")
    with pytest.raises(UsageError, match="before: its suite could not be run"):
        build_side(side, Request(suite=Path("ml/small.yaml"), ref="before"))


def test_an_unknown_ref_lists_those_there_are(repository: Path) -> None:
    """An option in place of a ref is none either."""
    for ref in ("nonsense", "--upload-pack=x", ""):
        with pytest.raises(UsageError, match="no such commit, branch or tag .* there are .*before"):
            gate_against(Request(suite=Path("ml/small.yaml"), ref=ref), Rerunner(progress=Silent()))


def test_a_suite_that_the_other_commit_lacks_is_not_comparable(repository: Path) -> None:
    """Exit code 3, and nothing is built."""
    (repository / "ml/other.yaml").write_text(SUITE)
    commit(repository, "another suite")
    with pytest.raises(NotComparable, match=r"ml/other\.yaml is not in before"):
        gate_against(Request(suite=Path("ml/other.yaml"), ref="before"), Rerunner(progress=Silent()))


def test_a_suite_outside_a_repository(tmp_path: Path) -> None:
    """The message says what is needed; so does that about a run in place of a suite."""
    file = tmp_path / "small.yaml"
    file.write_text(SUITE)
    with pytest.raises(UsageError, match="needs a git repository"):
        gate_against(Request(suite=file, ref="main"), Rerunner(progress=Silent()))
    with pytest.raises(UsageError, match="takes the file of a suite"):
        gate_against(Request(suite=tmp_path, ref="main"), Rerunner(progress=Silent()))


def test_a_commit_with_other_requirements_gets_its_own_environment(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other commit is built by that environment's interpreter, unless one asks for the same."""
    (repository / "requirements.txt").write_text("numpy\nscipy\n")
    commit(repository, "scipy")
    pythons: list[Path] = []

    def build(side: Side, request: Request) -> Path:
        pythons.append(side.python)
        if side.name == "HEAD":
            raise NotComparable("enough")
        return side.out

    monkeypatch.setattr(against, "make_environment", lambda tree, home: home / "bin/python")
    for same, name in ((False, "environment"), (True, None)):
        progress, pythons[:] = Notes(), []
        request = Request(suite=Path("ml/small.yaml"), ref="before", same_environment=same)
        with pytest.raises(NotComparable):
            gate_against(request, Rerunner(progress=progress), build=build)
        assert "requirements.txt differ" in progress.notes[0]
        assert [python == Path(sys.executable) for python in pythons] == [name is None, True]


def test_the_artifacts_of_each_side_run_under_its_own_libraries(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate is told where the other commit's interpreter finds its packages, and nothing where it is this one."""
    interpreter = tmp_path / "python"
    interpreter.write_text("#!/bin/sh\necho '[\"/of/that/commit\"]'\n")
    interpreter.chmod(0o755)
    paths: list[tuple[str, ...]] = []

    def judge(folders: list[Path], old: Side, rerunner: Rerunner, home: Path, request: Request) -> Gated:
        paths.append(rerunner.baseline_paths)
        return Gated(suite="small", folder=folders[1], baseline=None, verdicts=())

    monkeypatch.setattr(against, "_judge", judge)
    monkeypatch.setattr(against, "make_environment", lambda tree, home: interpreter)
    request = Request(suite=Path("ml/small.yaml"), ref="before")
    gate_against(request, Rerunner(progress=Silent()), build=lambda side, request: side.out)
    (repository / "requirements.txt").write_text("numpy\nscipy\n")
    commit(repository, "scipy")
    gate_against(request, Rerunner(progress=Silent()), build=lambda side, request: side.out)
    assert paths == [(), ("/of/that/commit",)]


@pytest.mark.parametrize(
    ("file", "old", "new", "differs"),
    [
        ("pyproject.toml", "[tool.ruff]\nx = 1\n", "[tool.ruff]\nx = 2\n", False),
        ("pyproject.toml", '[project]\ndependencies = ["a"]\n', '[project]\ndependencies = ["a>1"]\n', True),
        ("requirements-dev.txt", "a\n", "b\n", True),
        ("uv.lock", "a", "b", True),
        ("notes.txt", "a", "b", False),
    ],
)
def test_only_what_must_be_installed_counts(tmp_path: Path, file: str, old: str, new: str, differs: bool) -> None:
    """A linter's setting needs no other environment."""
    for name, text in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
    assert against.compare_requirements(tmp_path / "old", tmp_path / "new") == ([file] if differs else [])


def test_an_environment_holds_the_requirements_and_qbench(tmp_path: Path) -> None:
    """A venv, then the commit's requirements and this qbench in one step, so that pip refuses what contradicts; the
    former commit of qbench itself gives way to this one in a second step."""
    (tmp_path / "requirements.txt").write_text("numpy\n")
    commands: list[list[str]] = []
    python = against.make_environment(
        tmp_path, tmp_path / "env", run=lambda command, folder: commands.append(list(command))
    )
    assert commands[0] == [sys.executable, "-m", "venv", str(tmp_path / "env")]
    assert commands[1][:4] == [str(python), "-m", "pip", "install"]
    assert commands[1][-3:] == ["-r", str(tmp_path / "requirements.txt"), against.describe_qbench()]
    (tmp_path / "qbench").mkdir()
    (tmp_path / "qbench/registry.py").touch()
    commands.clear()
    against.make_environment(tmp_path, tmp_path / "env", run=lambda command, folder: commands.append(command[-1:]))
    assert commands[1:] == [[str(tmp_path / "requirements.txt")], [against.describe_qbench()]]


def test_without_a_network_there_is_a_way_out(tmp_path: Path) -> None:
    """pip's last words, and the option that goes on."""
    (tmp_path / "requirements.txt").write_text("./no-such-package.whl\n")
    (tmp_path / "env/bin").mkdir(parents=True)

    def fail(command: list[str], folder: Path) -> None:
        against._run([sys.executable, "-c", "import sys; sys.exit('no matching distribution')"], folder)

    with pytest.raises(UsageError, match="no matching distribution; --same-environment"):
        against.make_environment(tmp_path, tmp_path / "env", run=fail)


@pytest.mark.parametrize(
    ("code", "said"),
    [("sys.exit('one\\ntwo\\nthree\\nfour')", "two three four"), ("sys.exit(7)", "exit code 7")],
)
def test_of_what_pip_says_the_last_three_lines_are_told(tmp_path: Path, code: str, said: str) -> None:
    """Where it says nothing, its exit code is."""
    with pytest.raises(UsageError, match=f"cannot be installed: {said}; --same-environment"):
        against._run([sys.executable, "-c", f"import sys; {code}"], tmp_path)


def test_hooks_of_the_repository_do_not_run(repository: Path) -> None:
    """Checking out runs nothing."""
    hook = repository / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    found = find_repository(repository / "ml/small.yaml")
    with found.checked_out([found.commit("before")]) as (folder,):
        assert (folder / "ml/small.yaml").is_file()
        assert not list(folder.glob("**/ran"))
    assert not folder.exists()
