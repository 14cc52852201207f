"""Commits of a git repository in folders of their own, for as long as they are needed.

No program runs that the configuration of the repository, or of the user, names: no hook, file monitor or filter (files
of git-lfs stay the pointers that are committed). Neither the repository nor the working tree that one sits in is
touched. Files that git does not track are in neither folder.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.errors import UsageError, first_names
from qbench.files import regular_file
from qbench.record.plain_git import GitFailed, ask_git, check_out


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
            there = f"; there are {first_names(names)}" if names else ""
            shallow = " (a shallow clone: fetch it first)" if self._is_shallow() else ""
            raise UsageError(f"{ref}: no such commit, branch or tag in {self.top}{shallow}{there}") from error

    def _is_shallow(self) -> bool:
        return _git(self.top, "rev-parse", "--is-shallow-repository").strip() == "true"

    def uncommitted(self) -> list[str]:
        """The files that differ from the commit that is checked out, new ones that git does not ignore included."""
        lines = _git(self.top, "status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all").split("\0")
        return [line[3:] for line in lines if line]

    def has(self, commit: str, path: str) -> bool:
        """Whether a commit holds a file."""
        return bool(_git(self.top, "ls-tree", "-z", "--name-only", commit, "--", path))

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether a commit is another one, or comes before it."""
        try:
            return _git(self.top, "merge-base", older, newer).strip() == older
        except UsageError:  # they have nothing in common
            return False

    def list_between(self, older: str, newer: str) -> list[str]:
        """The commits behind one up to another, the oldest first: along first parents, so that what a merge brought is
        one change; all of them where the older one does not lie there."""
        span = f"{older}..{newer}"
        along = _git(self.top, "rev-list", "--reverse", "--first-parent", "--ancestry-path", span, "--").split()
        return along or _git(self.top, "rev-list", "--reverse", "--ancestry-path", span, "--").split()

    @contextlib.contextmanager
    def checked_out(self, commits: Sequence[str]) -> Iterator[list[Path]]:
        """Each commit in a folder of its own, gone afterwards, also after an error or Ctrl-C."""
        with tempfile.TemporaryDirectory(prefix="qbench-worktrees-", ignore_cleanup_errors=True) as home:
            folders = [Path(home) / f"{number}-{commit[:12]}" for number, commit in enumerate(commits)]
            for folder, commit in zip(folders, commits, strict=True):
                try:
                    check_out(self.top, commit, folder)
                except GitFailed as error:
                    raise UsageError(f"{commit[:12]} cannot be checked out ({error})") from error
            yield folders


def find_repository(file: Path) -> Repository:
    """The repository that a file lies in; ``UsageError`` where there is none."""
    try:
        top = _git(regular_file.real_path(file).parent, "rev-parse", "--show-toplevel").rstrip("\n")
    except UsageError as error:
        raise UsageError(f"a commit needs a git repository, and {file} lies in none ({error})") from error
    return Repository(top=Path(top))


def _git(folder: Path, *words: str) -> str:
    """What git says; ``UsageError`` with its last words where it fails."""
    try:
        return ask_git(folder, *words).decode("utf-8", errors="surrogateescape")
    except GitFailed as error:
        raise UsageError(str(error)) from error
