"""Commits of a git repository in folders of their own, for as long as they are needed.

Nothing that the repository configures runs (hooks, a file monitor), and the working tree that one sits in is not
touched. Files that git does not track are in neither folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import UsageError, first_names

_PLAIN = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "advice.detachedHead=false")
# What git sets for a hook, from which qbench may be called: it would name another repository than the folder's.
_OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A repository by the top folder of its working tree."""

    top: Path

    def commit(self, ref: str) -> str:
        """The full sha of what a branch, tag or commit names; ``UsageError`` that lists what there is."""
        try:
            return _git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip()
        except UsageError as error:
            names = _git(self.top, "for-each-ref", "--format=%(refname:short)", "--sort=-committerdate").split()
            known = f"; there are {first_names(names)}" if names else ""
            shallow = " (a shallow clone: fetch it first)" if self._is_shallow() else ""
            raise UsageError(f"--against {ref}: no such commit, branch or tag in {self.top}{shallow}{known}") from error

    def _is_shallow(self) -> bool:
        return _git(self.top, "rev-parse", "--is-shallow-repository").strip() == "true"

    def uncommitted(self) -> list[str]:
        """The files that differ from the commit that is checked out, new ones that git does not ignore included."""
        lines = _git(self.top, "status", "--porcelain", "-z", "--no-renames").split("\0")
        return [line[3:] for line in lines if line]

    def has(self, commit: str, path: str) -> bool:
        """Whether a commit holds a file."""
        return bool(_git(self.top, "ls-tree", "-z", "--name-only", commit, "--", path))

    @contextlib.contextmanager
    def checked_out(self, commits: Sequence[str]) -> Iterator[list[Path]]:
        """Each commit in a folder of its own, gone afterwards, also after an error or Ctrl-C."""
        home = Path(tempfile.mkdtemp(prefix="qbench-worktrees-"))
        folders = [home / f"{number}-{commit[:12]}" for number, commit in enumerate(commits)]
        try:
            for folder, commit in zip(folders, commits, strict=True):
                _git(self.top, "worktree", "add", "--detach", "--force", str(folder), commit)
            yield folders
        finally:
            for folder in folders:
                with contextlib.suppress(UsageError):
                    _git(self.top, "worktree", "remove", "--force", "--force", str(folder))
            shutil.rmtree(home, ignore_errors=True)
            with contextlib.suppress(UsageError):
                _git(self.top, "worktree", "prune")


def find_repository(file: Path) -> Repository:
    """The repository that a file lies in; ``UsageError`` where there is none."""
    try:
        top = _git(file.resolve().parent, "rev-parse", "--show-toplevel").rstrip("\n")
    except UsageError as error:
        raise UsageError(f"--against needs a git repository, and {file} lies in none ({error})") from error
    return Repository(top=Path(top))


def _git(folder: Path, *words: str) -> str:
    """What git says; ``UsageError`` with its last words where it fails."""
    git = shutil.which("git")
    if git is None:
        raise UsageError("git is not installed")
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    done = subprocess.run(
        [git, *_PLAIN, "-C", str(folder), *words],
        env=environment | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        words_of_git = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
        raise UsageError(f"git {words[0]}: {words_of_git[-1] if words_of_git else f'exit code {done.returncode}'}")
    return done.stdout.decode("utf-8", errors="surrogateescape")
