"""Rules of qbench/gating/worktrees.py that need no suite; with the gate: tests/gating/test_against.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qbench.errors import UsageError
from qbench.gating.worktrees import Repository, find_repository


def git(folder: Path, *words: str) -> str:
    """What git says."""
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com"]
    return subprocess.run(
        ["git", *identity, "-C", str(folder), *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(folder: Path, name: str) -> str:
    """A commit that adds a file of that name; its sha."""
    (folder / name).write_text(name)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", name)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One with a commit."""
    top = tmp_path / "repository"
    git(tmp_path, "init", "-q", "-b", "main", str(top))
    commit(top, "a")
    return Repository(top=top)


def test_an_unknown_ref_says_what_there_is_as_far_as_there_is_something(repository: Repository, tmp_path: Path) -> None:
    """A repository without a branch lists none; one that was cloned in part says how to get the rest."""
    with pytest.raises(UsageError, match=rf"^x: no such commit, branch or tag in {repository.top}; there are main$"):
        repository.commit("x")
    git(tmp_path, "init", "-q", str(tmp_path / "empty"))
    with pytest.raises(UsageError, match=rf"^x: no such commit, branch or tag in {tmp_path}/empty$"):
        Repository(top=tmp_path / "empty").commit("x")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository.top}", str(tmp_path / "part"))
    with pytest.raises(UsageError, match=r"/part \(a shallow clone: fetch it first\); there are "):
        Repository(top=tmp_path / "part").commit("x")


def test_what_differs_from_the_commit_is_named_and_nothing_where_nothing_does(repository: Repository) -> None:
    """Changed files and new ones, each whole; not those that are ignored."""
    assert repository.uncommitted() == []
    (repository.top / ".gitignore").write_text("ignored\n")
    (repository.top / "ignored").write_text("")
    (repository.top / "a").write_text("changed")
    assert sorted(repository.uncommitted()) == [".gitignore", "a"]


def test_a_commit_comes_before_another_or_does_not(repository: Repository) -> None:
    """It is its own ancestor; one of another root has none in common."""
    first = git(repository.top, "rev-parse", "HEAD")
    second = commit(repository.top, "b")
    assert repository.is_ancestor(first, second)
    assert repository.is_ancestor(first, first)
    assert not repository.is_ancestor(second, first)
    git(repository.top, "checkout", "-q", "--orphan", "other")
    other = commit(repository.top, "c")
    assert not repository.is_ancestor(first, other)
    assert (repository.has(other, "c"), repository.has(second, "c")) == (True, False)


def test_what_a_merge_brought_is_one_change_unless_the_older_commit_lies_in_it(repository: Repository) -> None:
    """Along first parents, the oldest first; from within the branch that was merged, every commit behind it."""
    first = git(repository.top, "rev-parse", "HEAD")
    git(repository.top, "checkout", "-q", "-b", "branch")
    inner = [commit(repository.top, name) for name in ("b", "c")]
    git(repository.top, "checkout", "-q", "main")
    main = commit(repository.top, "d")
    git(repository.top, "merge", "-q", "--no-ff", "-m", "merge", "branch")
    merge = git(repository.top, "rev-parse", "HEAD")
    assert repository.list_between(first, merge) == [main, merge]
    assert repository.list_between(inner[0], merge) == [inner[1], merge]


def test_a_repository_is_that_of_the_folder_of_a_file(repository: Repository, tmp_path: Path) -> None:
    """By the top of its working tree; a file that lies in none is named."""
    (repository.top / "ml").mkdir()
    assert find_repository(repository.top / "ml" / "s.yaml") == Repository(top=repository.top.resolve())
    with pytest.raises(UsageError, match=r"a commit needs a git repository, and .*s\.yaml lies in none"):
        find_repository(tmp_path / "s.yaml")


def test_commits_lie_in_folders_that_are_gone_afterwards(repository: Repository) -> None:
    """Each in its own, in their order; one that is not there is named by the first 12 signs of its sha."""
    first = git(repository.top, "rev-parse", "HEAD")
    second = commit(repository.top, "b")
    with repository.checked_out([second, first]) as folders:
        assert [folder.name for folder in folders] == [f"0-{second[:12]}", f"1-{first[:12]}"]
        assert [(folder / "b").exists() for folder in folders] == [True, False]
    assert not folders[0].parent.exists()
    with pytest.raises(UsageError, match=r"^0{12} cannot be checked out \("), repository.checked_out(["0" * 40]):
        raise AssertionError("it is not there")
