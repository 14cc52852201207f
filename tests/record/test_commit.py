"""Rules of qbench/record/commit.py: which commit a run was made at."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from qbench.record import commit as commit_module
from qbench.record.commit import Commit, read_commit
from qbench.record.plain_git import GitFailed

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *words: str) -> str:
    """What a git command printed."""
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of one commit."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "suite.yaml").write_text("suite: a\n", encoding="utf-8")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "suite: the first $1 | <b>\n\nbody")
    return tmp_path


def test_a_commit_is_its_full_name_and_subject(repository: Path) -> None:
    """Also from a folder inside the repository; files that git does not know are no change."""
    (repository / "suites").mkdir()
    (repository / "suites" / "new.txt").write_text("new", encoding="utf-8")
    expected = Commit(sha=git(repository, "rev-parse", "HEAD"), subject="suite: the first $1 | <b>", changed=False)
    assert read_commit(repository / "suites") == expected
    assert expected.short == expected.sha[:9]


def test_changed_files_are_told(repository: Path) -> None:
    """A run of edited files is not a run of the commit: the short name carries a plus."""
    (repository / "suite.yaml").write_text("suite: b\n", encoding="utf-8")
    commit = read_commit(repository)
    assert commit is not None
    assert commit.changed
    assert commit.short.endswith("+")


def test_no_program_of_the_repository_runs(repository: Path) -> None:
    """A monitor of the file system that the repository's own settings name is not started."""
    program = repository / ".git" / "spy"
    program.write_text(f"#!/bin/sh\ntouch {repository}/ran\n", encoding="utf-8")
    program.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(program))
    assert read_commit(repository) is not None
    assert not (repository / "ran").exists()


@pytest.mark.parametrize("scope", ["--local", "--global"])
def test_no_filter_runs(repository: Path, scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the repository's own nor the user's, as that of git-lfs is, by which git would see whether a file that
    looks newer changed. A file of the committed bytes has not; of others it is not told, but where an unfiltered file
    changed, too."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(repository / ".git" / "users.config"))
    (repository / "plain.txt").write_text("a\n", encoding="utf-8")
    git(repository, "add", "plain.txt")
    git(repository, "commit", "--quiet", "--message", "second")
    git(repository, "config", scope, "filter.spy.clean", f"touch '{repository}/ran'; cat")
    (repository / ".git" / "info" / "attributes").write_text("suite.yaml filter=spy\n", encoding="utf-8")
    os.utime(repository / "suite.yaml", (1, 1))
    (repository / "sub").mkdir()
    told = []
    for name in (None, "suite.yaml", "plain.txt"):
        if name is not None:
            (repository / name).write_text("suite: b\n", encoding="utf-8")  # of the old size: git looks into it
        commit = read_commit(repository / "sub")
        assert commit is not None
        told.append(commit.changed)
    assert told == [False, None, True]
    assert not (repository / "ran").exists()
    git(repository, "status")
    assert (repository / "ran").exists()


def test_a_filter_that_nobody_configured_hides_no_change(repository: Path) -> None:
    """git then reads the file as it is: git-lfs is not installed."""
    (repository / ".git" / "info" / "attributes").write_text("* filter=absent\n", encoding="utf-8")
    git(repository, "config", "filter.other.clean", "cat")
    git(repository, "config", "branch.absent.remote", "origin")
    (repository / "suite.yaml").write_text("suite: b\n", encoding="utf-8")
    commit = read_commit(repository)
    assert commit is not None
    assert commit.changed


def test_outside_a_repository_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor before the first commit, nor without git; a variable of a hook that calls qbench does not mislead it."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert read_commit(tmp_path) is None
    git(tmp_path, "init", "--quiet")
    assert read_commit(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert read_commit(tmp_path) is None


def test_the_repository_of_the_folder_counts(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``GIT_DIR``, which git sets where a hook calls qbench, names another repository."""
    monkeypatch.setenv("GIT_DIR", str(repository / "elsewhere"))
    assert read_commit(repository) is not None


def test_git_is_waited_for_five_seconds_and_what_it_does_not_tell_is_not_known(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository on a slow disk delays a run by no more; its commit may be told, and its files not."""
    (repository / "suite.yaml").write_text("suite: b\n", encoding="utf-8")
    asked: list[tuple[str, float | None]] = []
    ask, find = commit_module.ask_git, commit_module.find_filtered

    def ask_git(folder: Path, *words: str, seconds: float | None = None) -> bytes:
        asked.append((words[0], seconds))
        return ask(folder, *words, seconds=seconds)

    def find_filtered(folder: Path, files: list[bytes], *, seconds: float | None) -> set[bytes]:
        asked.append(("filters", seconds))
        return find(folder, files, seconds=seconds)

    def refuse(folder: Path, files: list[bytes], *, seconds: float | None) -> set[bytes]:
        raise GitFailed("no answer")

    monkeypatch.setattr(commit_module, "ask_git", ask_git)
    monkeypatch.setattr(commit_module, "find_filtered", find_filtered)
    assert read_commit(repository) is not None
    assert asked == [("log", 5.0), ("status", 5.0), ("filters", 5.0)]
    monkeypatch.setattr(commit_module, "find_filtered", refuse)
    untold = read_commit(repository)
    assert untold is not None
    assert (untold.changed, untold.short) == (None, untold.sha[:9])
