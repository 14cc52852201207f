"""Values with the cache's files that they name, taken to another machine: paths travel as what they stand for."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.cache import store
from qbench.cache.root import UNFINISHED
from qbench.errors import CaseError
from qbench.files import regular_file

FILES = "files"  # the kind of the cache's entries that hold one file from outside of it
_KEY_LENGTH = 64


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A value on its way: ``entries`` are the folders of the cache that it names (``kind/key``), ``files`` those files
    from outside by their sha256, ``folders`` those being made, whose content comes back."""

    payload: bytes
    entries: tuple[str, ...]
    files: Mapping[str, Path]
    folders: tuple[str, ...]


class _Packer(pickle.Pickler):
    """Pickles every path as what it stands for: a place in the cache, a file by its content, or itself."""

    def __init__(self, buffer: io.BytesIO, root: Path) -> None:
        super().__init__(buffer, protocol=5)
        self._root = root
        self.entries: dict[str, None] = {}
        self.folders: dict[str, None] = {}
        self.files: dict[str, Path] = {}

    def persistent_id(self, obj: Any) -> tuple[str, ...] | None:
        if not isinstance(obj, Path):
            return None
        if obj.is_relative_to(self._root):
            return self._name_place(obj.relative_to(self._root).parts)
        if not obj.is_file():
            return "path", str(obj)
        digest = store.file_digest(obj)
        if obj.suffix == ".py":
            return "code", str(obj), digest
        self.files[digest] = obj
        return "file", digest, obj.name

    def _name_place(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """Below the cache's root: in an entry, in a folder that is being made, or any other place."""
        if len(parts) >= 2 and parts[0] != UNFINISHED:
            place = f"{parts[0]}/{parts[1]}"
            if parts[1].startswith("."):
                self.folders[place] = None
                return "folder", place, *parts[2:]
            if len(parts[1]) == _KEY_LENGTH:
                self.entries[place] = None
        return "cache", *parts


class _Unpacker(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, root: Path, folders: Mapping[str, Path]) -> None:
        super().__init__(buffer)
        self._root, self._folders = root, folders

    def persistent_load(self, pid: Any) -> Path:
        kind, *parts = pid
        if kind == "cache":
            return Path(self._root, *parts)
        if kind == "folder":
            return self._folders[parts[0]].joinpath(*parts[1:])
        if kind == "file":
            return Path(self._root, FILES, parts[0], parts[1])
        path = Path(parts[0])
        if kind == "code" and (not path.is_file() or store.file_digest(path) != parts[1]):
            raise CaseError(
                f"{path} is not on this node, or has another text there: code is not sent to nodes; put the suite's "
                "folder at the same path on each (a shared disk, or the image)"
            )
        return path


def pack(value: Any, root: Path) -> Sent:
    """A value whose paths below the cache ``root``, and of files outside, are found again on another machine."""
    buffer = io.BytesIO()
    packer = _Packer(buffer, root)
    packer.dump(value)
    return Sent(
        payload=buffer.getvalue(), entries=tuple(packer.entries), files=packer.files, folders=tuple(packer.folders)
    )


def unpack(payload: bytes, root: Path, folders: Mapping[str, Path]) -> Any:
    """The value on a machine with the cache ``root``; ``folders`` are where its unfinished folders are there.

    Payloads are of this run's own machines: reading one runs what it names. Raises ``CaseError`` where the value names
    a Python file that is not there as it was.
    """
    return _Unpacker(io.BytesIO(payload), root, folders).load()


def read_folder(folder: Path) -> dict[str, bytes]:
    """Every file of a folder by its name below it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes what ``read_folder`` read."""
    for name, content in files.items():
        path = folder / name
        if not regular_file.real_path(path).is_relative_to(regular_file.real_path(folder)):
            raise CaseError(f"{name[:80]!r} leads out of the folder that it was sent for")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
