"""A content-addressed cache on disk: one folder per full sha256, verified on every hit, written atomically.

    <root>/<kind>/<sha256>/manifest.json + the files it lists
    <root>/locks/<kind>-<sha256>.lock, and folder-<sha256>.lock of a folder elsewhere that one process writes

The root (``cache.root``) is 0700: an artifact can hold native code.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from qbench.cache import manifest
from qbench.cache.manifest import MANIFEST, Damaged, file_digest
from qbench.cache.root import KINDS, LOCKS, cache_folder, hold_folder, in_use, open_cache
from qbench.errors import CaseError
from qbench.files.full_disk import is_full
from qbench.files.stored_name import require_digest

__all__ = [
    "MANIFEST",
    "Entry",
    "cache_folder",
    "fetch",
    "file_digest",
    "hold_folder",
    "in_use",
    "key_of",
    "open_cache",
    "source_digest",
]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One folder of the cache: ``files`` are the names in it, ``facts`` is what its maker said of it, ``fresh`` whether
    it was made just now, ``note`` says when a damaged entry had to be made again."""

    folder: Path
    files: frozenset[str]
    facts: Mapping[str, Any]
    fresh: bool
    note: str | None = None


def key_of(parts: Mapping[str, Any]) -> str:
    """The full sha256 (64 hex digits) of a mapping; equal mappings give equal keys."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def source_digest(*modules: ModuleType) -> str:
    """The sha256 of the source of modules, as 64 hex digits; of a package, every module below it counts.

    A key that names code takes the imported modules, not the names of their files: a module that moves takes its
    place in the key along, where the name of a file would be missing from it.
    """
    sources = {}
    for module in modules:
        file = Path(inspect.getfile(module))
        files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
        sources[module.__name__] = {path.relative_to(file.parent).as_posix(): file_digest(path) for path in files}
    return key_of(sources)


def fetch(
    root: Path,
    kind: str,
    key: str,
    make: Callable[[Path], Mapping[str, Any]],
    check: Callable[[Entry], object] = lambda entry: None,
    replace_facts: Callable[[Entry], Mapping[str, Any] | None] = lambda entry: None,
) -> Entry:
    """The entry of a key; ``make(folder)`` fills an empty folder and returns its facts if there is none yet, and
    ``replace_facts`` gives those that a sound entry has from now on (None: it stays as it is).

    Two processes that want the same key: one makes, the other waits. An entry that differs from its manifest, or whose
    facts ``check`` cannot read, is made again. Raises ``CaseError`` where the disk is full or not writable.
    """
    import filelock

    if kind not in KINDS:
        raise ValueError(f"{kind}: no kind of entry that `qbench clean` knows; name it in cache.root.KINDS")
    require_digest(key)
    folder = root / kind / key
    try:
        folder.parent.mkdir(exist_ok=True, mode=0o700)
        with filelock.FileLock(root / LOCKS / f"{kind}-{key}.lock"):
            note = None
            if folder.is_symlink() or folder.exists():
                try:
                    entry = _sound(folder, check)
                    if (facts := replace_facts(entry)) is None:
                        return entry
                    manifest.write(folder, facts)
                    return replace(entry, facts=manifest.read(folder).facts, fresh=True)
                except Damaged as damage:
                    note = f"the cached copy was damaged ({damage}) and was made again"
                    _remove(folder)
            _make(folder, make)
            listed = manifest.read(folder)
            return Entry(folder=folder, files=frozenset(listed.files), facts=listed.facts, fresh=True, note=note)
    except OSError as error:
        raise CaseError(
            f"{root}: the cache cannot be written ({error.strerror or error}); "
            "make room with `qbench clean`, or set QBENCH_CACHE to another folder"
        ) from error


def _make(folder: Path, make: Callable[[Path], Mapping[str, Any]]) -> None:
    for leftover in folder.parent.glob(f".{folder.name[:16]}-*"):  # of makers that were killed: this one holds the lock
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name[:16]}-", dir=folder.parent))
    try:
        manifest.write(temporary, make(temporary))
        temporary.rename(folder)
    except CaseError as error:
        if not is_full(temporary):
            raise
        raise CaseError(
            f"{folder.parent.parent}: the disk of the cache is full; make room, on it or with `qbench clean`, or set "
            f"QBENCH_CACHE to a folder on another disk ({error})"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sound(folder: Path, check: Callable[[Entry], object]) -> Entry:
    """The entry in a folder; raises ``Damaged`` where it is not what was written."""
    if folder.is_symlink() or not folder.is_dir():
        raise Damaged("it is no folder")
    listed = manifest.read(folder)
    entry = Entry(folder=folder, files=frozenset(listed.files), facts=listed.facts, fresh=False)
    try:
        check(entry)
    except MemoryError:
        raise
    except Exception as error:  # facts that nobody wrote can break whatever reads them, in any way
        raise Damaged(f"{MANIFEST} says what cannot be: {type(error).__name__}: {str(error)[:200]}") from error
    return entry


def _remove(folder: Path) -> None:
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink()
    else:
        shutil.rmtree(folder)
