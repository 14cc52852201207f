"""Names that a file holds which anybody may have written, before a path is made of them.

Every name that is read from a run, a record, a baseline or another machine and becomes a part of a path passes here.
"""

from __future__ import annotations

import re

from qbench.foreign_text import CONTROL

_MOST_BYTES = 255  # of a name, on common file systems
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DRIVE = re.compile(r"[A-Za-z]:")  # of Windows


def require_name(name: str) -> str:
    """The name of one file or folder, which leads to no other place; raises ``ValueError`` for anything else.

    Names that are hidden or that a command would take for an option are none: qbench gives no such.
    """
    if (reason := _find_fault(name)) is not None:
        raise ValueError(f"{name[:80]!r} {reason}, so it is no name of a file")
    return name


def require_path(path: str) -> str:
    """The path of a file below a folder, such as ``samples/a.npz``; raises ``ValueError`` for anything else."""
    for name in path.split("/"):
        if (reason := _find_fault(name)) is not None:
            raise ValueError(f"{path[:80]!r} {reason}, so it is no path below the folder")
    return path


def require_digest(digest: str) -> str:
    """A sha256 as 64 hex digits; raises ``ValueError`` for anything else."""
    if not is_digest(digest):
        raise ValueError(f"{digest[:80]!r} is no sha256 of 64 hex digits")
    return digest


def is_digest(digest: str) -> bool:
    """Whether a text is a sha256 as 64 hex digits."""
    return _DIGEST.fullmatch(digest) is not None


def name_of(identifier: str) -> str:
    """The name of the file of a case, a variant or a setting, whose id has slashes; raises ``ValueError`` where an id
    gives no name."""
    return require_name(identifier.replace("/", "__").replace(":", "-"))


def _find_fault(name: str) -> str | None:
    if not name:
        return "is empty"
    if name[0] in ".-":
        return f"begins with '{name[0]}'"
    if "/" in name or "\\" in name or _DRIVE.match(name):
        return "leads to another folder"
    if "\n" in name or "\t" in name or CONTROL.search(name):
        return "holds control characters"
    if len(name.encode("utf-8", errors="surrogatepass")) > _MOST_BYTES:
        return f"has more than {_MOST_BYTES} bytes"
    return None
