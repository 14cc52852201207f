"""The git commit that a run was made at: what its history says a change came with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qbench.record.plain_git import GitFailed, ask_git, find_filtered

# A repository that takes longer is on a disk that does; a run goes on without knowing its commit.
_SECONDS = 5.0
_LOOK = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=all")


@dataclass(frozen=True, kw_only=True)
class Commit:
    """``sha`` in full, the first line of its message, and whether tracked files differed from it (null: not told;
    files that git reads through filters, which are programs, may look changed without them)."""

    sha: str
    subject: str = ""
    changed: bool | None = None

    @property
    def short(self) -> str:
        """``1a2b3c4d5``, with a plus where files differed."""
        return f"{self.sha[:9]}{'+' if self.changed else ''}"


def read_commit(folder: Path) -> Commit | None:
    """The commit that is checked out in the folder; None outside a repository, before its first commit, and where git
    is not installed or does not answer."""
    try:
        told = ask_git(folder, "log", "-1", "--format=%H%n%s", seconds=_SECONDS).decode("utf-8", errors="replace")
    except GitFailed:
        return None
    sha, _, subject = told.partition("\n")
    return Commit(sha=sha, subject=subject.strip(), changed=_is_changed(folder))


def _is_changed(folder: Path) -> bool | None:
    """Whether tracked files differ; None where git does not tell, or where only such do that it reads filtered."""
    try:
        files = [line[3:] for line in ask_git(folder, *_LOOK, seconds=_SECONDS).split(b"\0") if line]
        filtered = find_filtered(folder, files, seconds=_SECONDS)
    except GitFailed:
        return None
    return None if files and filtered.issuperset(files) else bool(files)
