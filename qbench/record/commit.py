"""The git commit that a run was made at: what its history says a change came with."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

# A repository that takes longer is on a disk that does; a run goes on without knowing its commit.
_SECONDS = 5.0
# No configured program of the repository runs, nothing is written into it, and nothing is fetched.
_PLAIN = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false", "--no-optional-locks")
_OF_THE_REPOSITORY = ("--local", "--worktree")
# What git sets for a hook, from which qbench may be called: it would name another repository than the folder's.
_OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")


@dataclass(frozen=True, kw_only=True)
class Commit:
    """``sha`` in full, the first line of its message, and whether tracked files differed from it (null: not told;
    git is not asked where the repository itself names filters, which are programs)."""

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
    head = _ask(folder, "log", "-1", "--format=%H%n%s")
    if head is None:
        return None
    sha, _, subject = head.partition("\n")
    look = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
    status = None if _has_filters(folder) else _ask(folder, *look)
    return Commit(sha=sha, subject=subject.strip(), changed=None if status is None else bool(status.strip()))


def _has_filters(folder: Path) -> bool:
    """Whether the repository's own settings name programs through which git reads files, as it would to see whether one
    changed. Those of the user's own settings, such as that of large files, are none of them."""
    found = (_ask(folder, "config", scope, "--includes", "--get-regexp", r"^filter\.") for scope in _OF_THE_REPOSITORY)
    return any(found)


def _ask(folder: Path, *words: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    try:
        answer = subprocess.run(
            [git, *_PLAIN, "-C", str(folder), *words],
            env=environment | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "none"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.decode("utf-8", errors="replace")
