"""Rules of qbench/bisect/commits.py: which commits are candidates, and what is run of each."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kept_notes import Notes
from made_records import CASE, failed, info, int8, skipped
from made_runs import run_folder

from qbench.bisect import commits
from qbench.bisect.candidates import Absent
from qbench.bisect.commits import Commits, list_commits
from qbench.environments.environment import Environment
from qbench.errors import CaseError, UsageError
from qbench.gating.against import Request, Side
from qbench.gating.worktrees import find_repository
from qbench.record.schema import ArtifactFacts, Record


def git(folder: Path, *words: str) -> str:
    """What git says."""
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, text: str) -> str:
    """A commit of a suite with that text; the first letters of its sha."""
    (folder / "ml").mkdir(exist_ok=True)
    (folder / "ml/small.yaml").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", text)
    return git(folder, "rev-parse", "HEAD")[:12]


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, list[str]]:
    """A repository of four commits in a row, the second one tagged, and one beside them."""
    top = tmp_path / "repository"
    git(tmp_path, "init", "-q", "-b", "main", str(top))
    (top / "README").write_text("no suite yet")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "nothing")
    names = [git(top, "rev-parse", "HEAD")[:12], *(commit(top, f"suite {number}") for number in range(4))]
    git(top, "tag", "second", names[2])
    git(top, "checkout", "-q", "-b", "beside", names[1])
    commit(top, "beside")
    git(top, "checkout", "-q", "main")
    return top, names


def test_candidates_are_the_commits_in_between(repository: tuple[Path, list[str]]) -> None:
    """From the good one to the bad one, both with them; the other way round it is a fault that was mended."""
    top, names = repository
    file = top / "ml/small.yaml"
    assert list_commits(file, "second", "main")[1:] == (tuple(names[2:]), False)
    assert list_commits(file, "main", "second")[1:] == (tuple(names[:1:-1]), True)


def test_what_a_merge_brings_is_one_change(repository: tuple[Path, list[str]]) -> None:
    """Along first parents; from a commit of the branch, along the branch."""
    top, names = repository
    git(top, "merge", "-q", "-s", "ours", "-m", "merge", "beside")
    merge, branch = (git(top, "rev-parse", name)[:12] for name in ("HEAD", "beside"))
    assert list_commits(top / "ml/small.yaml", names[4], "main")[1] == (names[4], merge)
    assert list_commits(top / "ml/small.yaml", "beside", "main")[1] == (branch, merge)


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        ("nonsense", "main", "nonsense: no such commit, branch or tag"),
        ("main", "HEAD", "the same commit"),
        ("beside", "main", "neither comes before the other"),
    ],
)
def test_ends_that_are_none(good: str, bad: str, told: str, repository: tuple[Path, list[str]]) -> None:
    """With what to name."""
    with pytest.raises(UsageError, match=told):
        list_commits(repository[0] / "ml/small.yaml", good, bad)


@dataclass
class Opened:
    """Stands for ``OpenSuite``."""

    progress: Notes = field(default_factory=Notes)
    case: Any = field(default_factory=lambda: SimpleNamespace(id=CASE))

    def specify_worker(self, *given: Any) -> Any:
        return given


@dataclass
class History:
    """Commits that are built by writing down a record."""

    candidates: Commits
    built: list[str] = field(default_factory=list)


def make_commits(
    repository: tuple[Path, list[str]],
    tmp_path: Path,
    record: Record,
    monkeypatch: pytest.MonkeyPatch,
    finished: str | None = "2026-01-01T00:00:00Z",
) -> History:
    """The commits of the repository; every run has the record."""
    top, names = repository
    history = History(candidates=None)  # type: ignore[arg-type]

    def build(side: Side, request: Request) -> Path:
        assert (side.tree / "ml/small.yaml").read_text().startswith("suite ")
        assert (request.only, request.quiet) == (CASE, True)
        history.built.append(side.name)
        described = info(finished=finished)
        name = f"20260101T00000{len(history.built)}Z-ab12"
        folder = run_folder(side.out / "small" / name, [record], described)
        (folder / "predictions").mkdir()
        (folder / "predictions/it.npz").write_bytes(b"answers")
        return folder

    monkeypatch.setattr(commits, "artifact_file", lambda record, beside: Path("/cache/model.onnx"))
    history.candidates = Commits(
        opened=Opened(),  # type: ignore[arg-type]
        repository=find_repository(top / "ml/small.yaml"),
        suite=top / "ml/small.yaml",
        names=tuple(names),
        mended=False,
        home=tmp_path / "runs",
        quiet=True,
        build=build,
    )
    return history


RECORD = int8(artifact=ArtifactFacts(format="onnx", sha256="ab" * 32, size_bytes=5), predictions="predictions/it.npz")


def test_a_commit_is_built_from_its_own_folder_once(
    repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run is kept: a search that goes on builds nothing again. Its answers are those of its run."""
    history = make_commits(repository, tmp_path, RECORD, monkeypatch)
    arm = history.candidates.open(2)
    assert history.built == [repository[1][2]]
    assert arm.spec[:2] == (repository[1][2], Path("/cache/model.onnx"))
    arm.predict(tmp_path / "answers-2.npz")
    assert (tmp_path / "answers-2.npz").read_bytes() == b"answers"
    again = make_commits(repository, tmp_path, RECORD, monkeypatch)
    assert again.candidates.open(2).digest == arm.digest
    assert again.built == []
    assert again.candidates.open(3).digest == arm.digest, "one artifact under the same versions is the same"
    other = int8(artifact=ArtifactFacts(format="onnx", sha256="cd" * 32, size_bytes=5))
    changed = make_commits(repository, tmp_path, other, monkeypatch)
    assert changed.candidates.open(4).digest != arm.digest


def test_a_commit_without_the_suite_or_the_case_is_passed_by(
    repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is skipped is; one that failed is an answer."""
    history = make_commits(repository, tmp_path, int8("other/static/onednn/t1/b1"), monkeypatch)
    with pytest.raises(Absent, match=r"ml/small\.yaml is not in it"):
        history.candidates.open(0)
    with pytest.raises(Absent, match="its suite has no case"):
        history.candidates.open(1)
    with pytest.raises(Absent, match="its case is skipped"):
        make_commits(repository, tmp_path / "b", skipped(CASE), monkeypatch).candidates.open(1)
    with pytest.raises(CaseError, match="its case is failed") as caught:
        make_commits(repository, tmp_path / "c", failed(CASE), monkeypatch).candidates.open(1)
    assert not isinstance(caught.value, Absent)


def test_a_suite_that_cannot_be_run_at_a_commit_is_passed_by(
    repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason."""
    history = make_commits(repository, tmp_path, RECORD, monkeypatch)

    def refuse(side: Side, request: Request) -> Path:
        raise UsageError(f"{side.name}: its suite could not be run")

    history.candidates.build = refuse
    with pytest.raises(Absent, match="could not be run"):
        history.candidates.open(3)


def test_a_run_that_did_not_end_is_made_again(
    repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that a kill left behind."""
    killed = make_commits(repository, tmp_path, RECORD, monkeypatch, finished=None)
    killed.candidates.open(2)
    killed.candidates.open(2)
    assert killed.built == [repository[1][2]] * 2


def test_a_folder_without_a_run_hides_none(
    repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that a kill left before the first line was written."""
    history = make_commits(repository, tmp_path, RECORD, monkeypatch)
    history.candidates.open(2)
    (tmp_path / "runs" / repository[1][2] / "a").mkdir()
    history.candidates.open(2)
    assert history.built == [repository[1][2]]


def test_an_artifact_or_predictions_that_are_gone_are_told(
    repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first cannot be had; without the second there is nothing to compare."""
    without = int8(artifact=RECORD.artifact, predictions=None)
    arm = make_commits(repository, tmp_path, without, monkeypatch).candidates.open(2)
    with pytest.raises(CaseError, match="its run has no predictions"):
        arm.predict(tmp_path / "answers.npz")
    history = make_commits(repository, tmp_path / "b", RECORD, monkeypatch)
    monkeypatch.setattr(commits, "artifact_file", lambda record, beside: None)
    with pytest.raises(Absent, match="no longer in the cache; delete its run to build it again"):
        history.candidates.open(2)


def test_a_commit_runs_under_the_libraries_that_it_requires(
    repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their environment is made once, and said; where they are this commit's, nothing is made."""
    asked: list[str] = []
    environment = Environment(digest="d" * 64, folder=tmp_path / "overlay")
    history = make_commits(repository, tmp_path, RECORD, monkeypatch)
    monkeypatch.setattr(commits.against, "make_environment", lambda tree, tell: asked.append("made") or environment)
    assert history.candidates.open(3).spec[4] == {}
    assert (asked, history.candidates.opened.progress.notes) == ([], [])
    monkeypatch.setattr(commits, "compare_requirements", lambda tree, top: ["onnxruntime"])
    for _ in range(2):
        assert history.candidates.open(2).spec[4] == environment.worker_variables
    assert asked == ["made"]
    (note,) = history.candidates.opened.progress.notes
    assert note == f"{repository[1][2]}: onnxruntime differ: making an environment"

    def refuse(tree: Path, tell: Any) -> Environment:
        raise UsageError("no wheel")

    monkeypatch.setattr(commits.against, "make_environment", refuse)
    with pytest.raises(Absent, match="no wheel"):
        history.candidates.open(4)
