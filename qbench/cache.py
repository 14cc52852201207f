"""A content-addressed cache on disk: one folder per full sha256, verified on every hit, written atomically.

    <root>/CACHEDIR.TAG
    <root>/<kind>/<sha256>/manifest.json + the files it lists
    <root>/locks/<kind>-<sha256>.lock

The root is 0700: an artifact can hold native code. It is ``QBENCH_CACHE`` if set, else the user's cache folder.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from qbench.errors import CaseError, UsageError

TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache made by qbench; `qbench clean` empties it.\n"
)
MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One folder of the cache: ``facts`` is what its maker said of it, ``fresh`` whether it was made just now,
    ``note`` says when a damaged entry had to be made again."""

    folder: Path
    facts: Mapping[str, Any]
    fresh: bool
    note: str | None = None


def cache_folder() -> Path:
    """Where the cache lies; it need not exist yet."""
    chosen = os.environ.get("QBENCH_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return platformdirs.user_cache_path("qbench")


def open_cache(root: Path | None = None) -> Path:
    """The cache's root, made if need be; raises ``UsageError`` with what to do where it cannot be written."""
    root = cache_folder() if root is None else root
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        root.chmod(0o700)
        (root / "locks").mkdir(exist_ok=True, mode=0o700)
        tag = root / "CACHEDIR.TAG"
        if not tag.exists():
            tag.write_text(TAG)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise UsageError(
            f"{root}: the cache cannot be written ({error.strerror}); "
            "set QBENCH_CACHE to a folder that can, or mend its permissions"
        ) from error
    return root


def key_of(parts: Mapping[str, Any]) -> str:
    """The full sha256 (64 hex digits) of a mapping; equal mappings give equal keys."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The sha256 of a file, as 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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


def fetch(root: Path, kind: str, key: str, make: Callable[[Path], Mapping[str, Any]]) -> Entry:
    """The entry of a key; ``make(folder)`` fills an empty folder and returns its facts if there is none yet.

    Two processes that want the same key: one makes, the other waits. An entry whose files differ from its
    manifest is made again. Raises ``CaseError`` where the disk is full or not writable.
    """
    import filelock

    folder = root / kind / key
    try:
        folder.parent.mkdir(exist_ok=True, mode=0o700)
        with filelock.FileLock(root / "locks" / f"{kind}-{key}.lock"):
            damage = _damage(folder)
            if damage is None:
                return Entry(folder=folder, facts=_manifest(folder)["facts"], fresh=False)
            if folder.exists():
                shutil.rmtree(folder)
            facts = _make(folder, make)
            note = f"the cached copy was damaged ({damage}) and was made again" if damage else None
            return Entry(folder=folder, facts=facts, fresh=True, note=note)
    except OSError as error:
        raise CaseError(
            f"{root}: the cache cannot be written ({error.strerror or error}); "
            "make room with `qbench clean`, or set QBENCH_CACHE to another folder"
        ) from error


def _make(folder: Path, make: Callable[[Path], Mapping[str, Any]]) -> Mapping[str, Any]:
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name[:16]}-", dir=folder.parent))
    try:
        facts = make(temporary)
        files = {
            path.relative_to(temporary).as_posix(): file_digest(path)
            for path in sorted(temporary.rglob("*"))
            if path.is_file()
        }
        text = json.dumps({"files": files, "facts": facts}, indent=1, default=str)
        (temporary / MANIFEST).write_text(text, encoding="utf-8")
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    # As a later hit would read them: one form, whichever way they came.
    read: Mapping[str, Any] = _manifest(folder)["facts"]
    return read


def _manifest(folder: Path) -> Any:
    return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))


def _damage(folder: Path) -> str | None:
    """None for a sound entry, '' for none at all, else what is wrong with it."""
    if not folder.exists():
        return ""
    try:
        manifest = _manifest(folder)
        files, _ = manifest["files"], manifest["facts"]
        for name, digest in files.items():
            if file_digest(folder / name) != digest:
                return f"{name} has changed"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError, AttributeError):  # not JSON, not UTF-8, or not what was written
        return f"{MANIFEST} cannot be read"
    return None
