"""Empties the cache of artifacts, and says how much room that made."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from qbench import formatting, registry
from qbench.cache.manifest import MANIFEST, MOST_BYTES
from qbench.cache.root import (
    DOWNLOADS,
    ENVIRONMENTS,
    KINDS,
    LOCKS,
    TAG_FILE,
    cache_folder,
    is_entry,
    is_own,
    nobody_uses,
)
from qbench.errors import UsageError
from qbench.files import regular_file
from qbench.formatting import clean as clean_text

_DAY_SECONDS = 86_400.0
_LOCKED_AS = {DOWNLOADS: "download"}  # the kind that a lock's name begins with, where it is another word


@dataclass(frozen=True, kw_only=True)
class Cleaned:
    """What was removed, or would be: entries and their bytes; ``kept`` are younger, ``in_use`` are locked, ``foreign``
    are not qbench's. ``environments``: what the environments among the entries were made for, with their bytes."""

    folder: Path
    removed: int
    freed_bytes: int
    kept: int = 0
    in_use: int = 0
    foreign: int = 0
    environments: tuple[tuple[str, int], ...] = ()


def clean(
    root: Path | None = None,
    *,
    older_than_days: float | None = None,
    dry_run: bool = False,
    only: str | None = None,
    now: float | None = None,
) -> Cleaned:
    """What was removed from the cache; an entry's age counts from when it was made. ``only``: entries of this kind.

    Only what qbench names so goes: entries of its kinds, and downloads of data sets that are known here. An entry in
    the making is left alone, and so is whatever a symbolic link points at: only the link goes. Raises ``UsageError``
    when the folder is not a cache of qbench, when a run uses it, or when an entry cannot be removed.
    """
    folder = regular_file.real_path(cache_folder() if root is None else root)
    if not folder.exists():
        return Cleaned(folder=folder, removed=0, freed_bytes=0)
    _refuse_foreign(folder)
    if not (folder / LOCKS).is_dir():
        return Cleaned(folder=folder, removed=0, freed_bytes=0, foreign=_foreign(folder))
    oldest = None if older_than_days is None else (time.time() if now is None else now) - older_than_days * _DAY_SECONDS
    removed = freed = kept = in_use = 0
    environments: list[tuple[str, int]] = []
    with nobody_uses(folder):
        for entry in _entries(folder):
            if only is not None and entry.parent.name != only:
                continue
            if oldest is not None and entry.lstat().st_mtime > oldest:
                kept += 1
                continue
            with _unlocked(folder, entry) as free:
                if not free:
                    in_use += 1
                    continue
                size = size_bytes(entry)
                freed += size
                removed += 1
                if entry.parent.name == ENVIRONMENTS:
                    environments.append((_name_environment(entry), size))
                if not dry_run:
                    _remove(entry)
        foreign = _foreign(folder)
    return Cleaned(
        folder=folder,
        removed=removed,
        freed_bytes=freed,
        kept=kept,
        in_use=in_use,
        foreign=foreign,
        environments=tuple(environments),
    )


def _name_environment(entry: Path) -> str:
    """What an environment was made for, as its manifest says; its digest where that cannot be read."""
    try:
        wanted = json.loads(regular_file.read_text(entry / MANIFEST, MOST_BYTES))["facts"]["wanted"]
        return clean_text(" ".join(str(each) for each in wanted))
    except (OSError, ValueError, KeyError, TypeError):
        return entry.name


def size_bytes(path: Path) -> int:
    """The bytes of every file under a path; a symbolic link counts as itself, not as what it points at."""
    if path.is_symlink() or path.is_file():
        return path.lstat().st_size
    return sum(
        (Path(folder) / name).lstat().st_size for folder, _, names in os.walk(path, followlinks=False) for name in names
    )


def to_text(cleaned: Cleaned, *, dry_run: bool = False) -> str:
    """What went (or would go), how much room that made, and what stayed and why, in one line; below it one for each
    environment that went."""
    entries = "entry" if cleaned.removed == 1 else "entries"
    verb = "would remove" if dry_run else "removed"
    text = f"{verb} {cleaned.removed} {entries} from {cleaned.folder}: {formatting.size(cleaned.freed_bytes)}"
    reasons = (
        (cleaned.kept, "younger"),
        (cleaned.in_use, "in use"),
        (cleaned.foreign, "that qbench did not put there"),
    )
    stayed = [f"{number} {why}" for number, why in reasons if number]
    listed = [f"environment {name}: {formatting.size(size)}" for name, size in cleaned.environments]
    return "\n".join([text + (f"; kept {' and '.join(stayed)}" if stayed else ""), *listed])


def _refuse_foreign(folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"{folder}: a file, not a cache of qbench, so nothing was removed; check QBENCH_CACHE")
    if not is_own(folder) and any(folder.iterdir()):
        raise UsageError(
            f"{folder}: not a cache of qbench (it has no {TAG_FILE} of qbench's), so nothing was removed; "
            "check QBENCH_CACHE"
        )


def _entries(folder: Path) -> Iterator[Path]:
    """What may be removed: folders (or links in their place) that have a name of qbench's, kind by kind."""
    datasets = set(registry.names("dataset"))
    for kind in (*KINDS, DOWNLOADS):
        kind_folder = folder / kind
        if kind_folder.is_symlink() or not kind_folder.is_dir():
            continue
        for entry in sorted(kind_folder.iterdir()):
            is_expected = entry.name in datasets if kind == DOWNLOADS else is_entry(entry.name)
            if is_expected and (entry.is_symlink() or entry.is_dir()):
                yield entry


def _foreign(folder: Path) -> int:
    """How many things lie in the cache that are none of qbench's."""
    kinds = (*KINDS, DOWNLOADS)
    above = [path for path in folder.iterdir() if path.name not in (*kinds, LOCKS, TAG_FILE)]
    ours = set(_entries(folder))
    places = [folder / kind for kind in kinds if (folder / kind).is_dir() and not (folder / kind).is_symlink()]
    return len(above) + sum(path not in ours for place in places for path in place.iterdir())


@contextlib.contextmanager
def _unlocked(folder: Path, entry: Path) -> Iterator[bool]:
    """Holds the locks of an entry; gives False when a run holds one. A temporary folder is named by the first
    digits of its key, so it may have several."""
    import filelock  # only here: `qbench --help` need not pay for it

    prefix = f"{_LOCKED_AS.get(entry.parent.name, entry.parent.name)}-{entry.name.lstrip('.').split('-')[0]}"
    with contextlib.ExitStack() as locks:
        try:
            for lock in sorted((folder / LOCKS).glob(f"{prefix}*.lock")):
                locks.enter_context(filelock.FileLock(lock, timeout=0))
        except filelock.Timeout:
            yield False
            return
        yield True


def _remove(entry: Path) -> None:
    try:
        if entry.is_symlink() or not entry.is_dir():
            entry.unlink()
        else:
            shutil.rmtree(entry)
    except OSError as error:
        raise UsageError(
            f"{error.filename or entry}: cannot be removed ({error.strerror or error}); change its permissions"
        ) from error
