"""``manifest.json`` of a folder in the cache, or of a copy of one: the files that belong to it, and facts of its maker.

Whatever is not exactly what was written is damage: a manifest is read again from disk, where anything can happen.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from qbench.files import atomic, regular_file

MANIFEST = "manifest.json"
MOST_BYTES = 64 * 2**20  # of a manifest; the longest one so far, of 300 layers, has 200 kB
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Damaged(Exception):
    """An entry is not what was written; the text says what differs."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The sha256 of every file of a folder by its name below it, and what its maker said of it."""

    files: Mapping[str, str]
    facts: Mapping[str, Any]


def file_digest(path: Path) -> str:
    """The sha256 of a file, as 64 hex digits."""
    with regular_file.open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(folder: Path, facts: Mapping[str, Any]) -> None:
    """Lists what lies in a folder now."""
    files = {name: file_digest(folder / name) for name in sorted(_lying_in(folder))}
    plain = json.loads(json.dumps(facts, default=str))
    content = {"files": files, "facts": plain, "facts_sha256": _facts_digest(plain)}
    atomic.write_text(folder / MANIFEST, json.dumps(content, indent=1))


def read(folder: Path) -> Manifest:
    """The manifest of a folder in which every file is as it lists it, and none is besides; raises ``Damaged``."""
    manifest = _parsed(folder / MANIFEST)
    try:
        lying = _lying_in(folder)
        for name, digest in manifest.files.items():
            if name not in lying:
                raise Damaged(f"{name} is missing")
            if file_digest(folder / name) != digest:
                raise Damaged(f"{name} has changed")
    except OSError as error:
        raise Damaged(f"{Path(error.filename or folder).name} cannot be read: {error.strerror or error}") from error
    if others := sorted(lying - set(manifest.files)):
        raise Damaged(f"{others[0]} does not belong to it")
    return manifest


def remove(folder: Path) -> None:
    """Removes the files that a folder's manifest lists, the manifest and then the folder; raises ``Damaged`` where it
    has none, or where anything else lies in it: all of it stays then."""
    listed = _parsed(folder / MANIFEST)
    if folder.is_symlink():
        raise Damaged("it is a link")
    lying = _lying_in(folder)
    if others := sorted(lying - set(listed.files)):
        raise Damaged(f"{others[0]} does not belong to it")
    for name in lying:
        (folder / name).unlink()
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        path.rmdir()
    (folder / MANIFEST).unlink()
    folder.rmdir()


def _lying_in(folder: Path) -> set[str]:
    """The names of the files in a folder but for its manifest; raises ``Damaged`` for a link, which leads elsewhere."""
    names = set()
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise Damaged(f"{path.relative_to(folder).as_posix()} is a link")
        if not path.is_dir():
            names.add(path.relative_to(folder).as_posix())
    return names - {MANIFEST}


def _parsed(file: Path) -> Manifest:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise Damaged(f"{MANIFEST} is too long")
        content = json.loads(regular_file.read_text(file, MOST_BYTES))
    except FileNotFoundError as error:
        raise Damaged(f"{MANIFEST} is missing") from error
    except (OSError, ValueError, RecursionError) as error:  # not JSON, not UTF-8, nested too deeply
        raise Damaged(f"{MANIFEST} cannot be read") from error
    files, facts = (content.get("files"), content.get("facts")) if isinstance(content, dict) else (None, None)
    if not isinstance(files, dict) or not isinstance(facts, dict):
        raise Damaged(f"{MANIFEST} cannot be read")
    for name, digest in files.items():
        if not _is_plain(name) or not isinstance(digest, str) or not _SHA256.fullmatch(digest):
            raise Damaged(f"{MANIFEST} lists {name[:80]!r}, which is no file of it")
    # Those of former versions have no digest of their facts.
    if content.get("facts_sha256") not in (None, _facts_digest(facts)):
        raise Damaged(f"{MANIFEST} has changed")
    return Manifest(files=files, facts=facts)


def _is_plain(name: str) -> bool:
    """Whether a name leads to a file below the folder and to no other place."""
    path = PurePosixPath(name)
    return bool(path.parts) and path.as_posix() == name and not path.is_absolute() and not set(path.parts) & {"..", "."}


def _facts_digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
