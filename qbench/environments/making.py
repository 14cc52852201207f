"""Environments are made by pip, once, and lie in the cache by the digest of what decides them.

What is asked for is resolved to a lock, fetched as wheels, whose size is told before they are laid out, and read back
by a child process. An entry is whole or not there, two makers wait for each other, and one that is there needs no
network.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench import formatting
from qbench.cache import store
from qbench.cache.root import ENVIRONMENTS
from qbench.environments import pip
from qbench.environments.environment import Environment, Locked, describe_present, find_present, list_present
from qbench.environments.pins import Pin, normalize_name
from qbench.environments.pip import Resolved, Uninstallable
from qbench.environments.read_back import require_imports
from qbench.environments.releases import advise_nearest
from qbench.errors import UsageError

PACKAGES = "packages"  # of an entry: what comes before the present packages
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What an environment must hold, as words of pip's command line; paths in them count from ``folder``. ``content``:
    a digest of the files that they name."""

    requirements: tuple[str, ...]
    folder: Path | None = None
    content: str = ""


def make_environment(pins: Sequence[Pin], tell: Tell = lambda text: None) -> Environment:
    """The environment that is the present one with these packages in these versions; the present one where it has them.

    ``tell`` hears what will be fetched, and what that takes on disk. Whoever uses it holds ``store.in_use`` meanwhile.
    Raises ``Uninstallable`` with the nearest versions that can be had, ``Unreachable`` where the index does not answer
    and the environment was not made before, ``Unimportable`` where a package is installed and cannot be imported.
    """
    differing = [pin for pin in pins if not pin.allows(list_present().get(pin.name))]
    if not differing:
        return find_present()
    # The others are asked for as well: what the first need must not replace them.
    wanted = Wanted(requirements=tuple(str(pin) for pin in sorted(pins)))
    try:
        environment = make_for(wanted, tell)
    except Uninstallable as error:
        names = ", ".join(map(str, differing))
        advice = "; ".join(filter(None, (advise_nearest(pin) for pin in differing)))
        raise Uninstallable(f"{names} cannot be installed: {advice or f'pip says: {error}'}") from error
    require_imports(environment, pins)
    return environment


def make_for(wanted: Wanted, tell: Tell = lambda text: None, *, wheels_only: bool = True) -> Environment:
    """The environment in which the requirements hold; nothing of it is imported. ``wheels_only``: nothing is built.

    Raises ``Uninstallable`` or ``Unreachable`` with pip's last words.
    """
    root = store.open_cache()
    digest = find_digest(wanted)
    entry = store.fetch(
        root, ENVIRONMENTS, digest, lambda folder: _make(wanted, folder, tell, wheels_only=wheels_only), _read
    )
    lock = _read(entry)
    if not lock:
        return find_present()
    return Environment(digest=digest, folder=entry.folder / PACKAGES, lock=lock)


def find_digest(wanted: Wanted) -> str:
    """The digest by which an environment lies in the cache, as 64 hex digits; known without a network. A folder counts
    by what lies in it, wherever it is."""
    words = [word if wanted.folder is None else word.replace(str(wanted.folder), "") for word in wanted.requirements]
    return store.key_of({"wanted": words, "content": wanted.content, "present": describe_present()})


def digest_tree(folder: Path) -> str:
    """The digest of all files below a folder, as 64 hex digits."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    listed = [(path.relative_to(folder).as_posix(), store.file_digest(path)) for path in files if not path.is_symlink()]
    return store.key_of({"files": listed})


def _make(wanted: Wanted, folder: Path, tell: Tell, *, wheels_only: bool) -> Mapping[str, Any]:
    """Fills the folder of an entry; the facts of it."""
    resolved = pip.resolve(wanted.requirements, wanted.folder, wheels_only=wheels_only)
    lock: list[Locked] = []
    (folder / PACKAGES).mkdir()
    if resolved:
        lock = _install(resolved, folder, tell)
    return {
        "wanted": list(wanted.requirements),
        "lock": [[locked.pin.name, locked.pin.version, locked.sha256] for locked in lock],
    }


def _install(resolved: Sequence[Resolved], folder: Path, tell: Tell) -> list[Locked]:
    names = ", ".join(f"{each.pin.name} {each.pin.version}" for each in resolved)
    free = shutil.disk_usage(folder).free
    tell(f"environment with {names}: fetching; {formatting.size(free)} are free where it will lie")
    with tempfile.TemporaryDirectory(dir=folder) as fetched:
        wheels = pip.fetch_wheels(resolved, Path(fetched), tell)
        unpacked = sum(map(_count_unpacked_bytes, wheels))
        tell(f"environment with {names}: takes {formatting.size(unpacked)} in {folder.parent}; `qbench clean` frees it")
        if unpacked > shutil.disk_usage(folder).free:
            raise UsageError(
                f"{folder.parent}: an environment with {names} takes {formatting.size(unpacked)} there, and "
                f"{formatting.size(free)} are free; make room, or set QBENCH_CACHE to a folder on another disk"
            )
        pip.lay_out(wheels, folder / PACKAGES)
        return [_lock(wheel) for wheel in wheels]


def _lock(wheel: Path) -> Locked:
    """A wheel by the name and version in its file's name (PEP 427)."""
    name, version = wheel.name.split("-")[:2]
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Locked(pin=Pin(name=normalize_name(name), version=version.replace("_", "-")), sha256=digest)


def _count_unpacked_bytes(wheel: Path) -> int:
    with zipfile.ZipFile(wheel) as archive:
        return sum(member.file_size for member in archive.infolist())


def _read(entry: store.Entry) -> tuple[Locked, ...]:
    """The lock that an entry says it holds; raises where it says anything else."""
    return tuple(
        Locked(pin=Pin(name=str(name), version=str(version)), sha256=None if sha256 is None else str(sha256))
        for name, version, sha256 in entry.facts["lock"]
    )
