"""Rules of qbench/record/plain_git.py: nothing that is configured runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from qbench.gating.worktrees import find_repository
from qbench.record import plain_git
from qbench.record.commit import read_commit
from qbench.record.plain_git import GitFailed, ask_git, check_out, find_filtered

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
WHO = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main")
NAME = "a=b.c d"  # of a filter; a name is anything


def git(folder: Path, *words: str) -> str:
    """What git says, configured as it is."""
    return subprocess.run(["git", *WHO, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose configuration, and that of the user, names programs in every way; each leaves a file ``ran``.
    One of its two files is newer than git's index, so that its content is looked at."""
    top = tmp_path / "repository"
    top.mkdir()
    git(top, "init", "--quiet")
    for name in ("a.txt", "b.txt"):
        (top / name).write_text(f"{name}\n")
    (top / ".gitattributes").write_text("*.txt filter=lfs diff=planted\n")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "--message", "first")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho \"$0 $@\" >> '{tmp_path}/ran'\ncat\n")
    program.chmod(0o755)
    for hooks in (top / ".git" / "hooks", tmp_path / "template" / "hooks"):
        hooks.mkdir(parents=True, exist_ok=True)
        for hook in ("post-checkout", "post-index-change", "reference-transaction"):
            shutil.copy(program, hooks / hook)
    (top / ".git" / "info").mkdir(exist_ok=True)
    (top / ".git" / "info" / "attributes").write_text(f'b.txt filter="{NAME}"\nb.txt filter=global\n')
    users = tmp_path / "users.config"
    for file, driver in ((top / ".git" / "config", "lfs"), (top / ".git" / "config", NAME), (users, "global")):
        for key in ("smudge", "clean", "process"):
            git(top, "config", "--file", str(file), f"filter.{driver}.{key}", str(program))
        git(top, "config", "--file", str(file), f"filter.{driver}.required", "true")
    git(top, "config", "--file", str(users), "init.templateDir", str(tmp_path / "template"))
    settings = {"core.fsmonitor": program, "core.hooksPath": top / ".git/hooks", "log.showSignature": "true"}
    settings |= {"diff.external": program, "diff.planted.textconv": program, "diff.planted.command": program}
    settings |= {"gpg.program": program, "core.sshCommand": program, "credential.helper": program}
    for key, value in settings.items():
        git(top, "config", key, str(value))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(users))
    (top / "a.txt").write_text("changed\n")
    return top


def test_no_configured_program_runs(planted: Path, tmp_path: Path) -> None:
    """Not where a commit is read, nor where it is checked out: neither filters of any name, also the user's, nor hooks,
    a template's among them, a monitor of files, nor what compares files or checks signatures."""
    repository = find_repository(planted / "a.txt")
    head = repository.commit("HEAD")
    assert repository.uncommitted() == ["a.txt"]
    told = read_commit(planted)
    assert told is not None
    assert told.sha == head
    with repository.checked_out([head, head]) as folders:
        assert [(folder / "b.txt").read_text() for folder in folders] == ["b.txt\n"] * 2
        assert read_commit(folders[0]) is not None
        assert list((folders[0] / ".git").glob("hooks/*")) == []
    assert not (tmp_path / "ran").exists()
    subprocess.run(["git", "status"], cwd=planted, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (tmp_path / "ran").exists()  # the programs are planted well


def test_the_repository_is_left_as_it_was(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worktree of it, on a disk that is not there right now, is not forgotten."""
    elsewhere = planted.parent / "elsewhere"
    (planted / ".git" / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    shutil.rmtree(planted / ".git" / "hooks")
    git(planted, "worktree", "add", "--quiet", "--detach", str(elsewhere))
    shutil.rmtree(elsewhere)
    before = sorted(planted.rglob("*"))
    repository = find_repository(planted / "a.txt")
    with repository.checked_out([repository.commit("HEAD")]):
        assert sorted(planted.rglob("*")) == before
    assert sorted(planted.rglob("*")) == before


def test_what_git_cannot_do_is_told_in_its_words(planted: Path, tmp_path: Path) -> None:
    """A commit that is not there, and a folder without a repository."""
    with pytest.raises(GitFailed, match="git checkout: fatal: .*"):
        check_out(planted, "0" * 40, tmp_path / "new")
    with pytest.raises(GitFailed, match="not a git repository"):
        ask_git(tmp_path, "status")


def test_git_that_fails_without_a_word_is_told_by_its_exit_code(planted: Path) -> None:
    """As it does where a setting is not there."""
    with pytest.raises(GitFailed, match="^git config: exit code 1$"):
        ask_git(planted, "config", "--get", "no.such")


def test_git_is_waited_for_as_long_as_is_said(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By every call that an answer takes; one that does not come in time is a failure like any other."""
    waited: list[float | None] = []
    run = subprocess.run

    def note(words: list[str], **options: Any) -> Any:
        waited.append(options["timeout"])
        return run(words, **options)

    def hang(words: list[str], **options: Any) -> Any:
        raise subprocess.TimeoutExpired(words, 3.0)

    monkeypatch.setattr(subprocess, "run", note)
    ask_git(planted, "rev-parse", "HEAD", seconds=70.0)
    find_filtered(planted, [b"a.txt", b"b.txt"], seconds=80.0)
    assert set(waited[:2]) == {70.0}
    assert set(waited[2:]) == {80.0}
    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(GitFailed, match="^git config: .*timed out after 3.0 seconds$"):
        ask_git(planted, "status", seconds=3.0)


def test_files_are_asked_about_250_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command line holds no more names; where no filter is configured git is not asked at all."""
    calls: list[tuple[str, ...]] = []

    def ask(folder: Path, *words: str, seconds: float | None = None) -> bytes:
        if words[0] == "rev-parse":
            return bytes(tmp_path) + b"\n"
        calls.append(words[4:])
        return b"".join(b"%s\0filter\0%s\0" % (name.encode(), b"lfs" if name != "7" else b"-") for name in words[4:])

    monkeypatch.setattr(plain_git, "ask_git", ask)
    files = [b"%d" % number for number in range(501)]
    monkeypatch.setattr(plain_git, "_list_filters", lambda folder, seconds: set())
    assert find_filtered(tmp_path, files, seconds=None) == set()
    assert calls == []
    monkeypatch.setattr(plain_git, "_list_filters", lambda folder, seconds: {"lfs"})
    assert find_filtered(tmp_path, files, seconds=None) == {*files} - {b"7"}
    assert [len(names) for names in calls] == [250, 250, 1]
